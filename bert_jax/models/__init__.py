"""Functional Flax modules: encoders and heads; no I/O, no loss, no sharding."""

from bert_jax.models.bert import SIZES, Bert, BertConfig, sized
from bert_jax.models.heads import (
    Features,
    MaskedLM,
    MultipleChoice,
    Pretraining,
    ReplacedTokenDetection,
    SequenceClassifier,
    SpanClassifier,
    TokenClassifier,
)

__all__ = [
    "SIZES",
    "Bert",
    "BertConfig",
    "Features",
    "MaskedLM",
    "MultipleChoice",
    "Pretraining",
    "ReplacedTokenDetection",
    "SequenceClassifier",
    "SpanClassifier",
    "TokenClassifier",
    "sized",
]
