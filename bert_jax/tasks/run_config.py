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
    init_from: str | None
    eval_every: int
    checkpoint_every: int


Run = TypeVar("Run", bound=RunConfig)
