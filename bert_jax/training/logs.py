"""Metrics of a run: their speed part, metrics.jsonl, TensorBoard events, progress bar.

All three outputs show the same numbers.
"""

import json
import math
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, TextIO, TypeVar

import jax
import numpy as np
from tqdm import tqdm

from bert_jax import files
from bert_jax.data import progress
from bert_jax.training import tensorboard
from bert_jax.training.step import add_totals
from bert_jax.training.task import Task, Totals

# Peak dense bfloat16 FLOP/s of one device as JAX counts them, by `device_kind`: from
# the makers' data sheets; NVIDIA's state twice as much, with sparsity. A chip of TPU v3
# and TPU7x is two devices. Only a kind that is listed whole reports an MFU: the
# beginning of a name does not tell "TPU v5 lite" from "TPU v5", or an H100 from its
# slower versions and its parts (MIG).
PEAK_FLOPS = {
    "TPU v3": 61.5e12,
    "TPU v4": 275e12,
    "TPU v5 lite": 197e12,  # v5e
    "TPU v5e": 197e12,
    "TPU v5": 459e12,  # v5p
    "TPU v5p": 459e12,
    "TPU v6 lite": 918e12,  # v6e
    "TPU v6e": 918e12,
    "TPU7x": 2307e12 / 2,
    "NVIDIA A100-SXM4-40GB": 312e12,
    "NVIDIA A100-SXM4-80GB": 312e12,
    "NVIDIA A100-PCIE-40GB": 312e12,
    "NVIDIA A100 80GB PCIe": 312e12,
    "NVIDIA H100 80GB HBM3": 989e12,
    "NVIDIA H100 PCIe": 756e12,
    "NVIDIA H100 NVL": 835e12,
    "NVIDIA H200": 989e12,
    "NVIDIA B200": 2250e12,
    "NVIDIA GB200": 2500e12,
    "NVIDIA L4": 121e12,
}

# Seconds between two lines of the bar where it is not a terminal.
LINE_EVERY = 15.0

T = TypeVar("T")


class MetricsWriter:
    """Writes numbers to `workdir/metrics.jsonl` and `workdir/tensorboard/`.

    Process 0 writes; elsewhere the methods do nothing. Each line is on its way to the
    disk when `write` returns.

    Args:
      workdir: of the run.
      hparams: the config by dotted path, which TensorBoard shows beside the scores.
    """

    def __init__(
        self, workdir: str | os.PathLike, hparams: Mapping[str, Any] | None = None
    ):
        self._writes = jax.process_index() == 0
        self._path = files.local_path(workdir) / "metrics.jsonl"
        if self._writes:
            files.make_directory(self._path.parent)
            self._lines = self._open()
            directory = self._path.with_name("tensorboard")
            with tensorboard.Events(directory) as events:
                events.hparams(hparams or {})
            self._events = {
                split: tensorboard.Events(directory / split)
                for split in tensorboard.SPLITS
            }

    def __enter__(self) -> "MetricsWriter":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def write(self, step: int, split: str, values: Mapping[str, Any]) -> None:
        """One line, and one event; a number that is not finite becomes null."""
        if not self._writes:
            return
        values = {name: float(value) for name, value in values.items()}
        finite = {k: v if math.isfinite(v) else None for k, v in values.items()}
        line = json.dumps({"step": step, "split": split, **finite})
        with files.write_errors(self._path):
            self._lines.write(line + "\n")
            self._lines.flush()
        self._events[split].scalars(step, values)

    def truncate_after(self, step: int, *, evaluated: bool = True) -> None:
        """Removes the lines after `step`, and a last line that is incomplete.

        A run that resumes from `step` writes these lines again, and that of the
        evaluation of `step` unless it was `evaluated`.
        """
        if not self._writes:
            return
        self._lines.close()
        lines = self._path.open(encoding="utf-8", errors="replace")
        valid = [line for line in lines if _upto(step, evaluated, line)]
        files.write_text(self._path, "".join(valid))
        self._lines = self._open()
        self._events["train"].forget(step + 1)
        self._events["eval"].forget(step + 1 if evaluated else step)

    def close(self) -> None:
        """Closes all files."""
        if self._writes:
            self._lines.close()
            for events in self._events.values():
                events.close()

    def _open(self):
        with files.write_errors(self._path):
            return self._path.open("a", encoding="utf-8")


def _upto(step, evaluated, line):
    """True if `line` is whole and belongs to the work done up to `step`."""
    try:
        entry = json.loads(line)
        done = (entry["step"], entry["split"]) != (step, "eval") or evaluated
        return entry["step"] <= step and done and line.endswith("\n")
    except (ValueError, KeyError, TypeError):
        return False


class ProgressBar(progress.Bar):
    """Step, loss, real tokens a second and time left.

    A bar on a terminal; elsewhere a plain line now and then, and one when compilation
    begins. Process 0 shows it.

    Args:
      total: steps in the run.
      start: steps done before.
      stream: where it is shown; None takes standard error where that is a terminal, and
        standard output elsewhere: notebooks paint the other one red.
    """

    _format = "{n_fmt}/{total_fmt} |{bar}|{postfix}"
    _delay = 0.0
    _in_notebooks = False  # they have the lines

    def __init__(self, total: int, start: int = 0, stream: TextIO | None = None):
        elsewhere = sys.stderr if sys.stderr.isatty() else sys.stdout
        self._shows = jax.process_index() == 0
        super().__init__(
            total, "steps", shown=self._shows, stream=stream or elsewhere, start=start
        )
        self._total = total
        self._printed = -math.inf
        self._step, self._numbers = start, ""
        self._noted_compiling = False
        # Steps are timed from the end of the first one on, which compiled, and from
        # report to report: between two reports nothing waits for the devices.
        self._timed_from: tuple[int, float] | None = None
        self._bar.set_postfix_str(progress.COMPILING)

    def update(self, n: int = 1) -> None:
        """`n` more steps are done."""
        self._step += n
        if self._timed_from is None:
            self._compilations.take()
            self._timed_from = self._step, time.monotonic()
        self._bar.set_postfix_str(self._text(), refresh=False)
        self._bar.update(n)

    def report(self, step: int, loss: float, tokens_per_second: float | None) -> None:
        """New numbers to show; the speed is None where no step was timed."""
        self._numbers = f"loss {loss:.3f}"
        if tokens_per_second is not None:
            self._numbers += f", {tokens_per_second:,.0f} tokens/s"
        now = time.monotonic()
        before, began = self._timed_from or (step, now)
        compiled = self._compilations.take()
        if step > before:
            self._times.add((now - began) / (step - before), compiled)
        self._step, self._timed_from = step, (step, now)
        self._bar.set_postfix_str(self._text())
        due = now - self._printed >= LINE_EVERY or step == self._total
        if self._bar.disable and self._shows and due:
            self._printed = now
            self.note(f"step {step}/{self._total}: {self._text()}")

    def note(self, line: str) -> None:
        """A line of its own, above the bar."""
        if self._shows:
            tqdm.write(line, file=self._stream)
            self._stream.flush()

    def _text(self) -> str:
        steps = self._total - self._step
        left = self._times.left(steps) if steps > 0 else ""
        return ", ".join(filter(None, (self._numbers, left)))

    def _show_end(self) -> None:
        """The last numbers stay."""
        self._bar.set_postfix_str(self._text(), refresh=False)

    def _show_compiling(self) -> None:
        if self._step >= self._total:  # an evaluation compiles
            return
        text = ", ".join(filter(None, (self._numbers, progress.COMPILING)))
        self._bar.set_postfix_str(text)
        if self._bar.disable and not self._noted_compiling:
            self._noted_compiling = True
            self.note(progress.COMPILING)


class Throughput:
    """Speed of the steps since the last log line.

    The clock starts at the end of the first step after a pause, so that speed counts
    neither compilation nor evaluation nor a save.
    """

    def __init__(self):
        self._last: Totals | None = None
        self._began: float | None = None
        self._reset()

    def _reset(self):
        self._work: Totals | None = None
        self._steps, self._elapsed, self._waited = 0, 0.0, 0.0

    def waiting(self, batches: Iterable[T]) -> Iterator[T]:
        """The batches, while the time that the loop waits for them is counted."""
        start = time.perf_counter()
        for batch in batches:
            if self._began is not None:
                self._waited += time.perf_counter() - start
            yield batch
            start = time.perf_counter()

    def add(self, totals: Totals) -> None:
        """Counts one step, without waiting for it while the clock runs."""
        self._last = totals
        if self._began is None:
            jax.block_until_ready(totals)
            self._began = time.perf_counter()
        else:
            work = {name: totals[name] for name in ("tokens", "flops")}
            self._work = add_totals(self._work, work)
            self._steps += 1

    def pause(self) -> None:
        """Stops the clock until the next step is done."""
        if self._began is not None:
            jax.block_until_ready(self._last)
            self._elapsed += time.perf_counter() - self._began
            self._began = None

    def take(self) -> dict[str, float]:
        """The speed of the steps that were timed, {} without one; a new count begins.

        `tokens_per_second` counts real tokens, `seconds` are those of a step, and
        `input_wait` is the share of the time in which the loop waited for rows; devices
        waited for at most this long, because they have steps ahead. `mfu`, where the
        devices' peak is known, is the share of it that model FLOPs account for;
        padding, recomputation and the optimizer count nothing.
        """
        self.pause()
        work, steps, seconds = self._work, self._steps, self._elapsed
        waited = self._waited
        self._reset()
        if work is None:
            return {}
        sums = {name: float(total) for name, (total, _) in jax.device_get(work).items()}
        report = {
            "tokens_per_second": sums["tokens"] / seconds,
            "seconds": seconds / steps,
        }
        if peak := PEAK_FLOPS.get(jax.devices()[0].device_kind):
            report["mfu"] = sums["flops"] / (seconds * peak * jax.device_count())
        return report | {"input_wait": waited / seconds}


def train_report(
    task: Task, totals: Totals, speed: Mapping[str, float]
) -> dict[str, float]:
    """The numbers of a "train" line, from the totals of its steps and their speed."""
    norms, steps = totals["grad_norm"]
    return {
        **task.report("train", totals, {}),
        "grad_norm": float(norms / np.maximum(steps, 1)),
        "skipped_steps": float(totals["skipped"][0]),
        **speed,
    }
