"""Functional Flax modules: encoders and heads; no I/O, no loss, no sharding.

In examples `encoder` is a `Bert` with B, L, D, H, V = 2, 7, 12, 3, 31, with the
parameters `params`; `ids` are `[B, L]`, and `key` is `jax.random.key(0)`.
"""

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
from bert_jax.models.modernbert import ModernBert, ModernBertConfig
from bert_jax.models.permutation import PermutationLM
from bert_jax.models.transformer import Stack, Transformer, TransformerConfig
from bert_jax.models.xlnet import XLNet, XLNetConfig

__all__ = [
    "SIZES",
    "Bert",
    "BertConfig",
    "Features",
    "MaskedLM",
    "ModernBert",
    "ModernBertConfig",
    "MultipleChoice",
    "PermutationLM",
    "Pretraining",
    "ReplacedTokenDetection",
    "SequenceClassifier",
    "SpanClassifier",
    "Stack",
    "TokenClassifier",
    "Transformer",
    "TransformerConfig",
    "XLNet",
    "XLNetConfig",
    "sized",
]
