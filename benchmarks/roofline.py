"""An estimate of step time on TPUs: a stated model, not a measurement.

    step = products + max(0, data - 2/3 products) + model + update

Products run at half of the chip's peak. What crosses the mesh's axis "data" hides
behind two thirds of them, the backward pass; what crosses "model", activations, hides
behind nothing. The update reads and writes 30 bytes for each parameter of the chip.
Stragglers, input and evaluation are left out.
"""

import math
from typing import NamedTuple

# Of the peak. Google's BERT-large on TPU v4 had 59 % (MLPerf Training v0.7, dense 512).
EFFICIENCY = 0.5
BACKWARD = 2 / 3
# Gradient, parameter and both moments in, the latter three out, and a bfloat16 copy.
UPDATE_BYTES = 30
# Seconds from one chip to the next.
HOP = 1e-6


class Chip(NamedTuple):
    """Rates and memory of a TPU chip.

    Attributes:
      peak: dense bfloat16 FLOP/s.
      memory: bytes of HBM.
      memory_rate: bytes/s of HBM.
      axis_rate: bytes/s, both directions together, of an axis of the torus.
      tori: slices by their number of chips.
    """

    peak: float
    memory: float
    memory_rate: float
    axis_rate: float
    tori: dict[int, tuple[int, ...]]


FLAT = {8: (2, 4), 64: (8, 8), 256: (16, 16)}
CUBIC = {8: (2, 2, 2), 64: (4, 4, 4), 256: (4, 8, 8)}

# Peak, memory and its rate: https://cloud.google.com/tpu/docs/v4, /v5e, /v5p, /v6e.
# Axes: Austin et al., How to Scale Your Model, 2025, chapter 2.
CHIPS = {
    "v4": Chip(275e12, 32e9, 1228e9, 9e10, CUBIC),
    "v5e": Chip(197e12, 16e9, 819e9, 9e10, FLAT),
    "v5p": Chip(459e12, 95e9, 2765e9, 1.8e11, CUBIC),
    "v6e": Chip(918e12, 32e9, 1640e9, 1.8e11, FLAT),
}


class Work(NamedTuple):
    """Work of one chip in a step.

    Attributes:
      flops: of the products.
      updated: parameters.
      data_bytes: that it sends over "data", were that axis endless; a sum of x bytes
        that all keep sends 2 x.
      model_bytes: that it sends over "model".
      copies: the length of "data".
    """

    flops: float
    updated: float
    data_bytes: float
    model_bytes: float
    copies: int


class Estimate(NamedTuple):
    """Seconds of the parts of a step; `exposed` is what hides behind nothing."""

    products: float
    exposed: float
    update: float

    @property
    def seconds(self) -> float:
        """Of the step."""
        return self.products + self.exposed + self.update

    @property
    def efficiency(self) -> float:
        """Share of the step that the products take."""
        return self.products / self.seconds


def estimate(chip: Chip, torus: tuple[int, ...], work: Work) -> Estimate:
    """A step on a slice whose axes have these lengths, with `work` on each chip."""
    products = work.flops / (EFFICIENCY * chip.peak)
    crossing = work.data_bytes * (work.copies - 1) / work.copies / rate(chip, torus)
    crossing += HOP * sum(n for n in torus if n > 1)
    exposed = max(0.0, crossing - BACKWARD * products)
    exposed += work.model_bytes / chip.axis_rate
    return Estimate(products, exposed, UPDATE_BYTES * work.updated / chip.memory_rate)


def rate(chip: Chip, torus: tuple[int, ...]) -> float:
    """Bytes/s of an exchange over all axes; those below 4 have no way round."""
    axes = (chip.axis_rate / (1 if n >= 4 else 2) for n in torus if n > 1)
    return sum(axes) or math.inf
