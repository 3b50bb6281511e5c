"""Pictures of what a model does inside, each a page that needs nothing else."""

from bert_jax.views.measures import (
    attention_distance,
    attention_entropy,
    mean_cosine,
    principal_components,
    rollout,
)

__all__ = [
    "attention_distance",
    "attention_entropy",
    "mean_cosine",
    "principal_components",
    "rollout",
]
