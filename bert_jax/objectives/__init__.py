"""Losses: pure functions of (params, batch, key).

The names below load on first use.
"""

import importlib
from typing import Any

_HOMES = {
    "LOSSES": "bert_jax.objectives.contrastive",
    "Masking": "bert_jax.objectives.masking",
    "Permutation": "bert_jax.objectives.permutation",
    "Totals": "bert_jax.objectives.losses",
    "VectorGroups": "bert_jax.objectives.contrastive",
    "Vocabulary": "bert_jax.objectives.masking",
    "apply_model": "bert_jax.objectives.losses",
    "cosine_distance": "bert_jax.objectives.distillation",
    "distillation_loss": "bert_jax.objectives.distillation",
    "left_to_right_loss": "bert_jax.objectives.left_to_right",
    "mask_tokens": "bert_jax.objectives.masking",
    "masked_lm_loss": "bert_jax.objectives.masked_lm",
    "matryoshka": "bert_jax.objectives.contrastive",
    "perm_mask": "bert_jax.objectives.permutation",
    "permutation_lm_loss": "bert_jax.objectives.permutation",
    "permute_tokens": "bert_jax.objectives.permutation",
    "replaced_token_loss": "bert_jax.objectives.replaced_tokens",
    "soft_targets": "bert_jax.objectives.distillation",
    "summarize": "bert_jax.objectives.losses",
    "throughput_totals": "bert_jax.objectives.losses",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
