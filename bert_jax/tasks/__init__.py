"""Tasks: the config, rows, head, objective and scores of each.

The names below load on first use.
"""

import importlib
from typing import Any

_HOMES = {
    "AnsweringConfig": "bert_jax.tasks.answering",
    "AnsweringTask": "bert_jax.tasks.answering",
    "ChoiceConfig": "bert_jax.tasks.choices",
    "ChoiceTask": "bert_jax.tasks.choices",
    "ClassificationConfig": "bert_jax.tasks.classification",
    "ClassificationTask": "bert_jax.tasks.classification",
    "DistillationConfig": "bert_jax.tasks.distillation",
    "DistillationTask": "bert_jax.tasks.distillation",
    "ElectraConfig": "bert_jax.tasks.electra",
    "ElectraTask": "bert_jax.tasks.electra",
    "EmbeddingConfig": "bert_jax.tasks.embedding",
    "EmbeddingTask": "bert_jax.tasks.embedding",
    "FineTuningConfig": "bert_jax.tasks.fine_tuning",
    "FineTuningTask": "bert_jax.tasks.fine_tuning",
    "LateInteractionConfig": "bert_jax.tasks.late_interaction",
    "LateInteractionTask": "bert_jax.tasks.late_interaction",
    "LeftToRightConfig": "bert_jax.tasks.left_to_right",
    "LeftToRightTask": "bert_jax.tasks.left_to_right",
    "PermutationConfig": "bert_jax.tasks.permutation",
    "PermutationTask": "bert_jax.tasks.permutation",
    "PretrainingConfig": "bert_jax.tasks.pretraining",
    "PretrainingTask": "bert_jax.tasks.pretraining",
    "RerankingConfig": "bert_jax.tasks.reranking",
    "RerankingTask": "bert_jax.tasks.reranking",
    "SparseEmbeddingConfig": "bert_jax.tasks.sparse_embedding",
    "SparseEmbeddingTask": "bert_jax.tasks.sparse_embedding",
    "TaggingConfig": "bert_jax.tasks.tagging",
    "TaggingTask": "bert_jax.tasks.tagging",
    "classification_totals": "bert_jax.tasks.classification",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
