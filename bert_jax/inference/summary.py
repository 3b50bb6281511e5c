"""A model in three lines, as a notebook or a prompt shows it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import jax
from flax import linen as nn

from bert_jax.files import counted
from bert_jax.models import PermutationLM, heads

if TYPE_CHECKING:
    from bert_jax.inference.model import Model

# Head -> its output, in the words of someone who uses it.
OUTPUTS: dict[type[nn.Module], str] = {
    heads.Features: "vectors of tokens",
    heads.Pretraining: "masked words and sentence pairs",
    heads.MaskedLM: "masked words",
    PermutationLM: "masked words",
    heads.SequenceClassifier: "classes of texts",
    heads.MultipleChoice: "choices",
    heads.TokenClassifier: "labels of words",
    heads.SpanClassifier: "answers",
    heads.ReplacedTokenDetection: "replaced words",
}

# Labels that are named.
SHOWN = 10


def lines(model: "Model") -> Iterator[str]:
    """Family and size; head and labels; tokenizer, length and pooling."""
    c = model.config
    parameters = sum(x.size for x in jax.tree.leaves(model.params))
    dtype = "" if c.dtype == "float32" else f", computes in {c.dtype}"
    yield (
        f"{c.model_type}: {counted(c.num_hidden_layers, 'layer')}, hidden size "
        f"{c.hidden_size:,}, {counted(c.num_attention_heads, 'head')}, MLP "
        f"{c.intermediate_size:,} with {c.hidden_act}; {parameters:,} parameters{dtype}"
    )
    yield f"head: {head_name(model.head)}{_labels(model.labels)}"
    tokenizer = model.tokenizer
    pieces = (
        f"{type(tokenizer).__name__} of {tokenizer.vocab_size:,} pieces"
        if tokenizer
        else f"no tokenizer for the {c.vocab_size:,} pieces"
    )
    settings = model.sparse or model.late or model.pooling
    pooling = settings.describe() if settings else "no pooling"
    yield f"{pieces}, rows of up to {model.max_length:,} tokens, {pooling}"


def head_name(head: nn.Module) -> str:
    """The output of a head; one of another package is named by its class."""
    return OUTPUTS.get(type(head), type(head).__name__)


def _labels(labels: tuple[str, ...]) -> str:
    if not labels:
        return ""
    more = ", …" if len(labels) > SHOWN else ""
    return f"; {counted(len(labels), 'label')}: {', '.join(labels[:SHOWN])}{more}"
