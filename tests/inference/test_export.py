"""Laws of `export`: it is the model, and needs nothing of this package."""

import json
import re
import subprocess
import sys

import jax
import numpy as np
import pytest
from tiny import LETTERS, TINY, made, wordpiece

import bert_jax
from bert_jax.models import (
    Bert,
    BertConfig,
    Features,
    MultipleChoice,
    Pretraining,
    SequenceClassifier,
)
from bert_jax.pretrained import Pooling

# Other positions, no token types, an offset: RoBERTa's ways.
OFFSET = BertConfig(
    **vars(TINY) | {"position_offset": 2, "type_vocab_size": 0, "model_type": "roberta"}
)
SHAPES = [(1, 3), (2, 7), (5, 18)]

RUN = """
import sys
for name in ("bert_jax", "flax", "orbax", "tokenizers"):
    sys.modules[name] = None  # importing it is an error
import jax.export
import numpy as np

folder, inputs, outputs = sys.argv[1:]
with open(f"{folder}/model.stablehlo", "rb") as file:
    program = jax.export.deserialize(file.read())
params = dict(np.load(f"{folder}/params.npz"))
given, found = np.load(inputs), {}
for name in sorted({key.split(" ")[0] for key in given}):
    arrays = [given[f"{name} {i}"] for i in range(3)]
    for i, x in enumerate(jax.tree.leaves(jax.jit(program.call)(params, *arrays))):
        found[f"{name} {i}"] = x
np.savez(outputs, **found)
"""


def batch(shape, vocab_size=TINY.vocab_size):
    """Rows with padding and two segments, the last of them full."""
    draw = np.random.default_rng(sum(shape))
    ids = draw.integers(5, vocab_size, shape, np.int32)
    rows = ids.reshape(-1, shape[-1])
    lengths = draw.integers(1, shape[-1] + 1, len(rows))
    lengths[-1] = shape[-1]
    mask = (np.arange(shape[-1]) < lengths[:, None]).astype(np.int32)
    types = (np.arange(shape[-1]) >= lengths[:, None] // 2) * mask
    return ids * mask.reshape(shape), mask.reshape(shape), types.reshape(shape)


def elsewhere(folder, tmp_path, batches):
    """The outputs of an export for batches, in a process without this package."""
    inputs = {
        f"{number} {i}": x
        for number, arrays in enumerate(batches)
        for i, x in enumerate(arrays)
    }
    np.savez(tmp_path / "in.npz", **inputs)
    files = [str(tmp_path / name) for name in ("in.npz", "out.npz")]
    command = [sys.executable, "-c", RUN, str(folder), *files]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert not done.returncode, done.stderr
    saved = np.load(tmp_path / "out.npz")
    return [
        [saved[k] for k in sorted(saved) if k.startswith(f"{number} ")]
        for number in range(len(batches))
    ]


def agree(model, folder, tmp_path, expected, shapes=SHAPES):
    batches = [batch(shape) for shape in shapes]
    for arrays, outputs in zip(
        batches, elsewhere(folder, tmp_path, batches), strict=True
    ):
        names = ("input_ids", "attention_mask", "token_type_ids")
        expected_outputs = jax.tree.leaves(
            expected(**dict(zip(names, arrays, strict=True)))
        )
        for x, y in zip(outputs, expected_outputs, strict=True):
            np.testing.assert_allclose(x, y, atol=1e-5)


@pytest.mark.parametrize("config", [TINY, OFFSET], ids=lambda c: c.model_type)
@pytest.mark.parametrize("head", [SequenceClassifier, Pretraining])
def test_an_export_runs_elsewhere_at_any_batch_and_length(tmp_path, config, head):
    fields = {"num_labels": 3} if head is SequenceClassifier else {}
    model = made(head(Bert(config), **fields))
    folder = bert_jax.export(model, tmp_path / "out")
    agree(model, folder, tmp_path, model)


def test_choices_have_an_axis_of_their_own(tmp_path):
    head = MultipleChoice(Bert(TINY))
    params = head.init(jax.random.key(0), np.zeros((1, 2, 2), np.int32))["params"]
    model = bert_jax.Model.of(head, params)
    folder = bert_jax.export(model, tmp_path / "out")
    agree(model, folder, tmp_path, model, [(1, 2, 5), (3, 4, 7)])


@pytest.mark.parametrize("mode", ["mean", "lasttoken"])
def test_vectors_are_those_of_embed(tmp_path, mode):
    tokenizer = wordpiece(tmp_path, LETTERS)
    model = made(Features(Bert(TINY)), tokenizer)
    model.pooling = Pooling((mode,), normalize=True)
    folder = bert_jax.export(model, tmp_path / "out")
    texts = ["a b c", "d", "e f g h i"]
    rows = model.tokenizer(texts)
    names = ("input_ids", "attention_mask", "token_type_ids")
    ((vectors,),) = elsewhere(folder, tmp_path, [[rows[name] for name in names]])
    np.testing.assert_allclose(vectors, model.embed(texts), atol=1e-5)
    assert json.loads((folder / "signature.json").read_text())["computes"] == "embed"
    assert (folder / "tokenizer.json").is_file()


def test_the_encoder_is_a_plain_function_of_params_ids_and_mask(tmp_path):
    model = made(SequenceClassifier(Bert(TINY), 2))
    function, params = bert_jax.as_function(model, "encoder")
    ids, mask, _ = batch((2, 7))
    expected = model.hidden_states(input_ids=ids, attention_mask=mask)[-1]
    np.testing.assert_allclose(function(params, ids, mask), expected, atol=1e-5)
    # It is a function of its parameters, so it can be differentiated by them.
    slopes = jax.grad(lambda params: function(params, ids, mask).sum())(params)
    assert slopes.keys() == params.keys()
    assert np.abs(slopes["layer_0/mlp/up/kernel"]).max() > 0


def test_the_code_in_the_readme_of_an_export_runs(tmp_path):
    folder = bert_jax.export(made(SequenceClassifier(Bert(TINY), 2)), tmp_path / "out")
    readme = (folder / "README.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", readme, re.S)
    script = f"import sys; sys.modules['bert_jax'] = None\n{code}\nprint(output.shape)"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, capture_output=True, text=True
    )
    assert done.stdout == "(2, 2)\n", done.stderr


def test_an_export_is_for_every_platform_and_lists_its_inputs(tmp_path):
    model = made(SequenceClassifier(Bert(TINY), 2), labels=("no", "yes"))
    folder = bert_jax.export(model, tmp_path / "out")
    signature = json.loads((folder / "signature.json").read_text())
    assert {"cpu", "cuda", "tpu"} <= set(signature["platforms"])
    assert signature["inputs"]["input_ids"] == "int32[B, L]"
    assert signature["outputs"] == ["float32[B, 2]"] and signature["labels"] == [
        "no",
        "yes",
    ]


def test_another_kind_or_a_directory_that_is_not_empty_is_an_error(tmp_path):
    model = made(SequenceClassifier(Bert(TINY), 2))
    with pytest.raises(
        ValueError, match="kind='logits' is unknown; choose one of model"
    ):
        bert_jax.export(model, tmp_path / "out", "logits")
    assert not (tmp_path / "out").exists()
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="exists already; delete it"):
        bert_jax.export(model, tmp_path)
