"""Functional Flax modules: encoders and heads; no I/O, no loss, no sharding."""

from bert_jax.models import attention_scores, layers, masks, ops
from bert_jax.models.bert import SIZES, Bert, BertConfig, sized
from bert_jax.models.heads import (
    Features,
    MaskedLM,
    MultipleChoice,
    PermutationLM,
    Pretraining,
    ReplacedTokenDetection,
    SentenceEncoder,
    SequenceClassifier,
    SpanClassifier,
    TokenClassifier,
)
from bert_jax.models.modernbert import ModernBert, ModernBertConfig
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
    "SentenceEncoder",
    "SequenceClassifier",
    "SpanClassifier",
    "Stack",
    "TokenClassifier",
    "Transformer",
    "TransformerConfig",
    "XLNet",
    "XLNetConfig",
    "attention_scores",
    "layers",
    "masks",
    "ops",
    "sized",
]
