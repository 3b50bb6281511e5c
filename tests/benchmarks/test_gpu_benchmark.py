"""Laws of what `benchmarks.gpu` measures and says; its halves need a GPU."""

import ast
from pathlib import Path

import numpy as np

from benchmarks import gpu

PACKED = gpu.tiny(gpu.CASES[1])


def test_synthetic_rows_are_what_the_case_says():
    rows = gpu.rows(PACKED)
    mask, labels = rows["attention_mask"], rows["labels"]
    assert mask.shape == (gpu.BATCHES, PACKED.rows, PACKED.length)
    assert set(np.unique(mask)) == {0, 1, 2, 3}
    assert ((labels >= 0).sum(-1) == PACKED.predictions).all()
    chosen = labels >= 0
    assert (mask[chosen] > 0).all()
    np.testing.assert_array_equal(labels[chosen], rows["input_ids"][chosen])
    starts = np.take_along_axis(rows["position_ids"], rows["cls_positions"], -1)
    assert (starts == 0).all()


def test_work_is_that_of_the_published_accounting():
    tokens, flops = gpu.work(gpu.CASES[0])
    # BERT-base at 128: 546.3 MFLOP a token, three times those of going forward.
    assert tokens == 256 * 128 and round(flops / tokens / 1e6, 1) == 546.3
    tokens, flops = gpu.work(gpu.CASES[2])
    assert round(3 * flops / tokens / 1e6, 1) == round(509.6 + 14.2, 1)


def test_the_table_holds_ratios_and_what_was_late():
    half = {"half": "PyTorch", "device": "NVIDIA H200", "how": "SDPA, torch.compile"}
    result = [
        half | {"half": "bert_jax", "how": "cudnn", "seconds": 0.5},
        half | {"seconds": 1.0},
        {"half": "PyTorch", "how": "", "error": "no time left"},
    ]
    lines = list(gpu.table([(gpu.CASES[0], result)]))
    assert len(lines) == 5
    # 17.9 TFLOP in half a second are 3.6 % of 989 TFLOP/s.
    assert "| bert_jax cudnn | 65,536 | 3.6% | 2.00 |" in lines[2]
    assert "| 32,768 | 1.8% | 1.00 |" in lines[3]
    assert "| no time left |" in lines[4]


def test_a_half_that_fails_says_why_and_a_late_one_is_not_begun(tmp_path):
    now = gpu.time.monotonic()
    [text] = gpu.run("benchmarks.no_such_module", tmp_path, now + 60)
    assert "No module named" in text["error"]
    assert list(gpu.run("benchmarks.gpu", tmp_path, now)) == [
        {"how": "", "error": "no time left"}
    ]


def test_the_half_of_pytorch_imports_nothing_of_ours():
    tree = ast.parse(Path(gpu.__file__).with_name("gpu_torch.py").read_text("utf-8"))
    names = {
        alias.name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    assert not names & {"jax", "flax", "bert_jax", "benchmarks", "tensorflow"}
