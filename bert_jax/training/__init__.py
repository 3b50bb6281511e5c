"""Training runs: config, loop, optimizers, layouts and checkpoints.

The names below load on first use.
"""

import importlib
from typing import Any

_HOMES = {
    "OptimizerConfig": "bert_jax.training.optimizers",
    "RowSource": "bert_jax.training.task",
    "Task": "bert_jax.training.task",
    "TaskConfig": "bert_jax.training.task",
    "TrainConfig": "bert_jax.training.config",
    "learning_rate": "bert_jax.training.optimizers",
    "make_optimizer": "bert_jax.training.optimizers",
    "resolve": "bert_jax.training.config",
}

__all__ = [*_HOMES, "sharding"]  # with a submodule


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
