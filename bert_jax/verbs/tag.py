"""The verb `tag`: a label for each word."""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from bert_jax.models import TokenClassifier
from bert_jax.tokenizers import Tokenizer
from bert_jax.tokenizers.text import listed
from bert_jax.words import pieces


class Tag(NamedTuple):
    """A word, its label, where it stands in the text, and how probable the label is."""

    word: str
    label: str
    start: int
    end: int
    probability: float


def tagged(
    head: nn.Module,
    params: Any,
    tokenizer: Tokenizer | None,
    labels: Sequence[str],
    texts: str | Sequence[str],
    run: Callable[..., Iterator[Any]],
) -> list[Any]:
    """See `Model.tag`; `run(step, texts, offsets=True)` gives answers of batches."""
    refuse_other_heads(head)
    many = listed(texts, "texts")
    names = labels or [f"LABEL_{i}" for i in range(head.num_labels)]
    step = functools.partial(_probabilities, head, params)
    found: list[Any] = [None] * len(many)
    for answer in run(step, many, offsets=True):
        words = pieces(tokenizer, answer.inputs)
        for row, x, its in zip(answer.rows, answer.output, words, strict=True):
            first = x[its.real][its.first]
            found[row] = [
                Tag(many[row][a:b], names[p.argmax()], int(a), int(b), float(p.max()))
                for (a, b), p in zip(its.spans, first, strict=True)
            ]
    return found[0] if isinstance(texts, str) else found


def refuse_other_heads(head: nn.Module) -> None:
    """Raises ValueError unless `head` gives an answer for each token."""
    if not isinstance(head, TokenClassifier):
        raise ValueError(
            f"this model has no token classifier but a {type(head).__name__}; load a "
            "checkpoint that was trained to label tokens"
        )


@functools.partial(jax.jit, static_argnums=0)
def _probabilities(head, params, batch) -> jax.Array:
    """`[B, L, C]`."""
    logits = head.apply({"params": params}, **batch)
    return jax.nn.softmax(logits.astype(jnp.float32))
