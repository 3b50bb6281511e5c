"""The families whose checkpoints can be read and written."""

from flax import linen as nn

from bert_jax.models.config import EncoderConfig
from bert_jax.pretrained.bert import ALBERT, BERT, DISTILBERT, ELECTRA, ROBERTA
from bert_jax.pretrained.family import Family
from bert_jax.pretrained.modernbert import MODERNBERT
from bert_jax.pretrained.xlnet import XLNET

# By the `model_type` of config.json. A new family is one table, listed here.
FAMILIES = {
    "bert": BERT,
    "roberta": ROBERTA,
    "distilbert": DISTILBERT,
    "albert": ALBERT,
    "electra": ELECTRA,
    "modernbert": MODERNBERT,
    "xlnet": XLNET,
}


def family_of(config: EncoderConfig) -> Family:
    """The family that publishes an encoder."""
    return FAMILIES[config.model_type]


def has_head(config: EncoderConfig, module: type[nn.Module]) -> bool:
    """True if the family of an encoder publishes a head."""
    return any(head.module is module for head in family_of(config).heads.values())
