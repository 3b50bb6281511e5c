"""The part of a run's config that tasks read and set."""

import dataclasses
from typing import Any, ClassVar, Protocol, TypeVar


class RunConfig(Protocol):
    """The config of a run, a dataclass with at least these fields.

    Tasks do not import `bert_jax.training`; its `TrainConfig` is such a config.
    """

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    encoder: Any
    task: Any
    optimizer: Any
    batch_size: int
    num_steps: int
    log_every: int
    init_from: str | None
    eval_every: int
    checkpoint_every: int
    keep_checkpoints: bool | None


Run = TypeVar("Run", bound=RunConfig)

# Lines of metrics.jsonl that make a curve.
LINES = 30


def log_every(most: int, steps: int) -> int:
    """Steps between two log lines, at most `most`: a short run has a curve, too.

    Never 1, because the first step after a line is not timed.

    >>> log_every(20, 62), log_every(20, 10_000), log_every(20, 5), log_every(1, 62)
    (2, 20, 2, 1)
    """
    return min(most, max(2, steps // LINES))
