"""Pictures of what a model does inside, each a page that needs nothing else."""

from bert_jax.views.measures import (
    attention_distance,
    attention_entropy,
    mean_cosine,
    principal_components,
    rollout,
)
from bert_jax.views.word_maps import WordMap, word_map

__all__ = [
    "WordMap",
    "attention_distance",
    "attention_entropy",
    "mean_cosine",
    "principal_components",
    "rollout",
    "word_map",
]
