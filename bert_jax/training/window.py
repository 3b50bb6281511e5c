"""What is said of the steps between two log lines: averages and speed."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from bert_jax.training.step import Totals, add_totals

# Peak dense bfloat16 FLOP/s of one device as JAX counts them, by `device_kind`.
# Makers' data sheets; a TPU v3 chip is two devices. Unknown kinds report no MFU.
PEAK_FLOPS = {
    "TPU v3": 61.5e12,
    "TPU v4": 275e12,
    "TPU v5 lite": 197e12,
    "TPU v5": 459e12,
    "TPU v5p": 459e12,
    "TPU v6 lite": 918e12,
    "NVIDIA A100": 312e12,
    "NVIDIA H100": 989e12,
    "NVIDIA H200": 989e12,
}


class Window:
    """Totals of some steps, kept on the device until `report`.

    `input_wait` is the share of the time that the loop waited for rows: what devices
    waited for them is at most that, for they have steps ahead.

    The clock starts at the end of the first step after a pause, so that speed counts
    neither compilation nor evaluation nor a save.

    Args:
      summary: totals -> averages by name.
      totals: those of a window that a checkpoint has cut in two.
    """

    def __init__(
        self,
        summary: Callable[[Totals], Mapping[str, float]],
        totals: Mapping[str, Sequence[float]] | None = None,
    ):
        self._summary = summary
        self._reset()
        if totals:
            self._totals = {k: tuple(np.float32(v)) for k, v in totals.items()}

    def _reset(self):
        self._totals, self._timed = None, None
        self._steps, self._elapsed, self._began = 0, 0.0, None
        self._waited = 0.0

    def received(self, batches: Iterable[Any]) -> Iterator[Any]:
        """The batches, while the time they keep the run waiting is counted."""
        asked = time.perf_counter()
        for batch in batches:
            if self._began is not None:
                self._waited += time.perf_counter() - asked
            yield batch
            asked = time.perf_counter()

    def add(self, totals: Totals) -> None:
        """Takes the totals of one step."""
        self._totals = add_totals(self._totals, totals)
        if self._began is None:
            jax.block_until_ready(totals)
            self._began = time.perf_counter()
        else:
            work = {name: totals[name] for name in ("tokens", "flops")}
            self._timed = add_totals(self._timed, work)
            self._steps += 1

    def pause(self) -> None:
        """Stops the clock until the next step is done."""
        if self._began is not None:
            jax.block_until_ready(self._totals)
            self._elapsed += time.perf_counter() - self._began
            self._began = None

    def totals(self) -> dict[str, list[float]]:
        """What a checkpoint holds of the window, for the run that goes on."""
        totals = jax.device_get(self._totals or {})
        return {name: [float(x) for x in pair] for name, pair in totals.items()}

    def report(self) -> dict[str, float]:
        """Averages of the steps and their speed; a new window begins."""
        self.pause()
        totals, timed = jax.device_get((self._totals, self._timed))
        report = self._summary(totals)
        report["grad_norm"] = float(_average(totals["grad_norm"]))
        report["skipped_steps"] = float(totals["skipped"][0])
        if timed:
            report |= speed(timed, self._steps, self._elapsed)
            report["input_wait"] = self._waited / self._elapsed
        self._reset()
        return report


def _average(pair):
    return pair[0] / max(pair[1], 1)


def speed(work: Totals, steps: int, seconds: float) -> dict[str, float]:
    """`tokens_per_second` (real tokens), `seconds` a step, and `mfu` where known.

    MFU is the share of the devices' peak that model FLOPs account for; padding,
    recomputation and the optimizer count nothing.
    """
    said = {
        "tokens_per_second": float(work["tokens"][0]) / seconds,
        "seconds": seconds / steps,
    }
    kind = jax.devices()[0].device_kind
    peaks = [peak for name, peak in PEAK_FLOPS.items() if kind.startswith(name)]
    if peaks:
        peak = peaks[-1] * jax.device_count()
        said["mfu"] = float(work["flops"][0]) / (seconds * peak)
    return said
