"""bert_jax beside PyTorch on one GPU: training and inference, in under ten minutes.

    python -m benchmarks.gpu [--tiny] [--minutes 9.5] [--steps 20]

Rows are synthetic, of the lengths that packing Wikipedia gives; neither files nor
TensorFlow are needed, only what `.[gpu]` installs, a torch built for CUDA, and
transformers. Each half of each case is a process of its own, so that no library holds
memory of the other. Prints a table, after a check that the kernels equal the plain path
on this GPU. `--tiny` shows on any machine that all of it runs; its figures say nothing.
"""

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.data.prepared_rows import model_inputs
from bert_jax.data.records import Layout
from bert_jax.models import sized
from bert_jax.training.logs import PEAK_FLOPS

BATCHES = 4
HALVES = {"bert_jax": "benchmarks.gpu_jax", "PyTorch": "benchmarks.gpu_torch"}


@dataclasses.dataclass(frozen=True)
class Case:
    """A measurement: a model, its rows and the goal for its figure on one H200.

    `sequences` share a row, `predictions` of its tokens are predicted, none where it is
    inference. `rate` is the dropout of attention's weights; in training a tenth of the
    hidden states is dropped in any case.
    """

    name: str
    layers: int
    hidden: int
    length: int
    rows: int
    sequences: int
    predictions: int
    rate: float = 0.0
    vocab_size: int = 30522


CASES = (
    Case("base 128", 12, 768, 128, 256, 1, 20),
    Case("large packed 512", 24, 1024, 512, 48, 3, 76),
    Case("base 128, inference", 12, 768, 128, 512, 1, 0),
    Case("base 128", 12, 768, 128, 256, 1, 20, rate=0.1),
    Case("large packed 512", 24, 1024, 512, 48, 3, 76, rate=0.1),
)


def tiny(case: Case) -> Case:
    """The same case for a CPU and a few seconds."""
    small = {"layers": 2, "hidden": 64, "rows": 4, "vocab_size": 999, "length": 32}
    return dataclasses.replace(case, **small, predictions=min(case.predictions, 5))


def main() -> None:
    """Measures all cases, or as many as there is time for, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--minutes", type=float, default=9.5)
    parser.add_argument("--steps", type=int, default=20)
    args = parser.parse_args()
    end = time.monotonic() + 60 * args.minutes
    cases = [tiny(case) if args.tiny else case for case in CASES]
    with tempfile.TemporaryDirectory() as folder:
        print(check(Path(folder), cases[1], end), flush=True)
        measured = [
            (case, list(measure(Path(folder), case, args.steps, end))) for case in cases
        ]
    print("\n".join(table(measured)))


def check(folder: Path, case: Case, end: float) -> str:
    """Differences of the kernels from the plain path, as text."""
    write(folder, case, steps=0)
    for result in run("benchmarks.gpu_jax", folder, end):
        print(result["device"])
        if "error" in result:
            return f"not checked: {result['error']}"
        return "\n".join(f"{k}: {v}" for k, v in result["kernels"].items()) or (
            "no kernel computes on this device: attention takes the plain path"
        )
    return "not checked"


def measure(
    folder: Path, case: Case, steps: int, end: float
) -> Iterator[dict[str, Any]]:
    """Results of each half of a case, one way of computing after the other."""
    write(folder, case, steps)
    for half, module in HALVES.items():
        for result in run(module, folder, end):
            yield {"half": half} | result
            print(f"{case.name}, {half}: {result}", file=sys.stderr, flush=True)


def write(folder: Path, case: Case, steps: int) -> None:
    """The case as its halves read it: case.json and rows.npz, `[batches, B, ...]`."""
    content = dataclasses.asdict(case) | {"steps": steps, "batches": BATCHES}
    (folder / "case.json").write_text(json.dumps(content))
    np.savez(folder / "rows.npz", **rows(case))


def rows(case: Case) -> dict[str, np.ndarray]:
    """Batches as the input pipeline gives them, and labels, -100 where there is none.

    A row holds `sequences` of random lengths, each of two segments, and where there are
    several, two positions of padding.
    """
    draw = np.random.default_rng(0)
    count, L, S = BATCHES * case.rows, case.length, case.sequences
    used = L - (2 if S > 1 else 0)
    inner = np.sort(
        draw.permuted(np.tile(np.arange(8, used - 8), (count, 1)), axis=1)[
            :, : 2 * S - 1
        ]
    )
    ends = np.pad(inner, ((0, 0), (1, 1)), constant_values=((0, 0), (0, used)))
    lengths = np.diff(ends, axis=1).reshape(count, S, 2)
    rows = model_inputs(lengths, Layout(L, S, "int32"))
    ids = draw.integers(999 // 2, case.vocab_size, (count, L), dtype=np.int32)
    real = rows["attention_mask"] > 0
    rows["input_ids"] = np.where(real, ids, 0)
    rows["pair_labels"] = draw.integers(0, 2, (count, S), dtype=np.int32)
    rows["example"] = np.arange(count, dtype=np.uint32)
    chosen = np.argsort(draw.random((count, L)) - real, axis=1)[:, : case.predictions]
    rows["labels"] = np.full((count, L), -100, np.int64)
    np.put_along_axis(
        rows["labels"], chosen, np.take_along_axis(ids, chosen, 1).astype(int), 1
    )
    return {
        name: x.reshape(BATCHES, case.rows, *x.shape[1:]) for name, x in rows.items()
    }


def run(module: str, folder: Path, end: float) -> Iterator[dict[str, Any]]:
    """The lines of JSON that a module says, and an error if it fails or is late."""
    seconds = end - time.monotonic()
    if seconds <= 0:
        yield {"how": "", "error": "no time left"}
        return
    command = [sys.executable, "-m", module, str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=seconds)
        lines, error = done.stdout, done.stderr.decode(errors="replace").strip()
        error = error.splitlines()[-1] if done.returncode and error else ""
    except subprocess.TimeoutExpired as late:
        lines, error = late.stdout or b"", "no time left"
    yield from (json.loads(x) for x in lines.splitlines() if x.startswith(b"{"))
    if error:
        yield {"how": "", "error": error}


def table(measured: list[tuple[Case, list[dict[str, Any]]]]) -> Iterator[str]:
    """Lines of Markdown: real tokens/s, MFU, and the ratio to torch.compile."""
    yield "| case | weights dropped | | real tokens/s | MFU | ratio to torch.compile |"
    yield "|---|---|---|---|---|---|"
    for case, results in measured:
        per_step, flops = work(case)
        compiled = [x["seconds"] for x in results if "compile" in x["how"]]
        for x in results:
            begin = f"| {case.name} | {case.rate:g} | {x['half']} {x['how']} "
            if "error" in x:
                yield f"{begin}| {x['error']:.60} | | |"
                continue
            peak = PEAK_FLOPS.get(x["device"])
            mfu = f"{flops / x['seconds'] / peak:.1%}" if peak else ""
            times = f"{compiled[0] / x['seconds']:.2f}" if compiled else ""
            rate = f"{per_step / x['seconds']:,.0f}"
            yield f"{begin}| {rate} | {mfu} | {times} |"


def work(case: Case) -> tuple[float, float]:
    """Real tokens and useful FLOPs in a step, on average over the batches."""
    drawn = rows(case)
    mask = drawn["attention_mask"].reshape(-1, case.length)
    values = np.arange(1, case.sequences + 1)[None, None]
    sizes = (mask[:, :, None] == values).sum(1).astype(float)
    config = sized(case.layers, case.hidden, vocab_size=case.vocab_size)
    flops = config.training_flops(
        tokens=sizes.sum() / BATCHES,
        seen=(sizes**2).sum() / BATCHES,
        predictions=float((drawn["labels"] >= 0).sum()) / BATCHES,
    )
    # Inference goes forward only.
    return sizes.sum() / BATCHES, float(flops) / (1 if case.predictions else 3)


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    main()
