"""Trained models and their methods: embed, classify, answer and others.

The names below load on first use.
"""

import importlib
from typing import Any

_HOMES = {
    "Attention": "bert_jax.inference.attention",
    "Model": "bert_jax.inference.model",
    "load": "bert_jax.inference.model",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
