"""`Model.classify`: names of classes with probabilities, or numbers."""

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from bert_jax.inference import batching, checks
from bert_jax.models import SequenceClassifier
from bert_jax.models.pooling import ACTIVATIONS
from bert_jax.pretrained import cross_encoder
from bert_jax.pretrained.config_json import ABOUT_TEXTS
from bert_jax.tokenizers.text import as_list, listed

if TYPE_CHECKING:
    from bert_jax.inference.model import Model

# The field of a model's `extra`, and so of config.json, for the tokens of a long text
# that it reads, if these are not the first ones.
(TRUNCATION,) = ABOUT_TEXTS

Text = str | tuple[str, str]


class Label(NamedTuple):
    """A class and its probability.

    >>> best, other = classifier.classify("a b")
    >>> round(best.probability + other.probability, 4)
    1.0
    """

    name: str
    probability: float


# The classes of a text, the likeliest first; a number for regression.
Prediction = list[Label] | float


def classify(
    model: "Model", texts: Text | Sequence[Text], batch_size: int
) -> Prediction | list[Prediction]:
    """See `Model.classify`."""
    check_head(model.head)
    many = [texts] if isinstance(texts, str | tuple) else as_list(texts, "texts")
    firsts, seconds = _split_pairs(many)
    scores = np.zeros((len(many), model.head.num_labels), np.float32)
    activation = cross_encoder.activation(model.extra)
    step = functools.partial(scores_of, model.head, activation, model.params)
    truncation = model.extra.get(TRUNCATION, "head")
    for result in batching.run_texts(
        model, step, firsts, seconds, batch_size=batch_size, truncation=truncation
    ):
        scores[result.rows] = result.output
    names = model.labels or [f"LABEL_{i}" for i in range(model.head.num_labels)]
    predictions = [_prediction(row, names) for row in scores]
    return predictions[0] if isinstance(texts, str | tuple) else predictions


def check_head(head: nn.Module) -> None:
    """Checks that `head` has one output for a sequence."""
    checks.check_head(
        head,
        (SequenceClassifier,),
        "classify",
        'train one with bert_jax.finetune(model, "classify", train=..., dev=...)',
    )


def _split_pairs(texts: Sequence[Text]) -> tuple[list[str], list[str] | None]:
    """First and second texts; either all rows have a second one, or none has."""
    paired = [isinstance(text, tuple) for text in texts]
    for row, text in enumerate(texts):
        if paired[row] != paired[0] or (paired[row] and len(text) != 2):
            raise ValueError(
                f"texts[{row}] is {text!r:.60}; give strings only, or only tuples of "
                "two strings"
            )
    if not any(paired):
        return listed(cast(Sequence[str], texts), "texts"), None
    firsts, seconds = zip(*texts, strict=True)
    return list(firsts), list(seconds)


def _prediction(row: np.ndarray, names: Sequence[str]) -> Prediction:
    """The classes of one text from their probabilities `[C]`."""
    if len(row) == 1:
        return float(row[0])
    order = np.argsort(-row, kind="stable")
    return [Label(names[i], float(row[i])) for i in order]


@functools.partial(jax.jit, static_argnums=(0, 1))
def scores_of(
    head: SequenceClassifier,
    activation: str | None,
    params: Mapping[str, Any],
    batch: Mapping[str, Any],
) -> jax.Array:
    """Probabilities `[B, C]`, or numbers `[B, 1]` after an activation, if there is one.

    An activation of several classes applies to each alone; Identity stands for their
    softmax, as none does.
    """
    output: Any = head.apply({"params": params}, **batch)
    logits = output.astype(jnp.float32)
    if activation not in (None, "Identity"):
        return ACTIVATIONS[activation](logits)
    if head.problem_type == "multi_label_classification":
        return jax.nn.sigmoid(logits)
    return logits if head.num_labels == 1 else jax.nn.softmax(logits)
