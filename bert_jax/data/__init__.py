"""Text and labelled files -> rows -> batches.

The names below load on first use.
"""

import importlib
from typing import Any

_HOMES = {
    "PreparedRows": "bert_jax.data.prepared_rows",
    "RaggedRows": "bert_jax.data.ragged",
    "RowConfig": "bert_jax.data.records",
    "Sentences": "bert_jax.data.conll",
    "Table": "bert_jax.data.tables",
    "files_by_split": "bert_jax.data.labelled_files",
}

__all__ = [*_HOMES, "conll", "corpus", "tables", "word_windows"]  # with submodules


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
