"""What is said of the steps between two log lines: averages and speed."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import jax

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

    The clock runs from the end of a window's first step, so that speed never counts
    compilation, evaluation or a save; the first step's tokens are not counted either.
    """

    def __init__(self, summary: Callable[[Totals], Mapping[str, float]]):
        self._summary = summary
        self._reset()

    def _reset(self):
        self._first, self._rest, self._steps, self._began = None, None, 0, None

    def add(self, totals: Totals) -> None:
        """Takes the totals of one step."""
        if self._first is None:
            self._first = jax.block_until_ready(totals)
            self._began = time.perf_counter()
        else:
            self._rest = add_totals(self._rest, totals)
        self._steps += 1

    def report(self) -> dict[str, Any]:
        """Averages of the steps, with their speed; of a single step, no speed (0)."""
        first, rest = jax.device_get((self._first, self._rest))
        elapsed = time.perf_counter() - self._began
        timed, totals = self._steps - 1, first
        if rest is not None:
            totals = jax.tree.map(lambda a, b: a + b, first, rest)
        total, count = totals["grad_norm"]
        report = {**self._summary(totals), "grad_norm": float(total / count)}
        self._reset()
        return report | speed(rest, timed, elapsed)


def speed(totals: Totals | None, steps: int, seconds: float) -> dict[str, float]:
    """`tokens_per_second` (real tokens), `seconds` a step, and `mfu` where known.

    MFU is the share of the devices' peak that model FLOPs account for; padding,
    recomputation and the optimizer count nothing.
    """
    if totals is None:
        return {"tokens_per_second": 0.0, "seconds": 0.0}
    said = {
        "tokens_per_second": float(totals["tokens"][0]) / seconds,
        "seconds": seconds / steps,
    }
    kind = jax.devices()[0].device_kind
    peaks = [peak for name, peak in PEAK_FLOPS.items() if kind.startswith(name)]
    if peaks:
        flops = float(totals["flops"][0])
        said["mfu"] = flops / (seconds * peaks[-1] * jax.device_count())
    return said
