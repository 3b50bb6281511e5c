"""Functional Flax modules: encoders and heads; no I/O, no loss, no sharding."""

from bert_jax.models.bert import SIZES, Bert, BertConfig, sized
from bert_jax.models.heads import Pretraining

__all__ = ["SIZES", "Bert", "BertConfig", "Pretraining", "sized"]
