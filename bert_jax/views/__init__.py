"""Interactive pages and plots from arrays, and the measures that they show."""

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
