"""The verb `classify`: names of classes with probabilities, or numbers."""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from bert_jax.models import SequenceClassifier

Text = str | tuple[str, str]


class Label(NamedTuple):
    """A class and how probable it is."""

    name: str
    probability: float


def classified(
    head: nn.Module,
    params: Any,
    labels: Sequence[str],
    texts: Text | Sequence[Text],
    run: Callable[..., Iterator[Any]],
) -> Any:
    """See `Model.classify`; `run(step, texts, pairs=)` gives the answers of batches."""
    refuse_other_heads(head)
    if not isinstance(texts, Iterable):
        raise ValueError(f"texts={texts!r:.60}; give a string, a pair or a list")
    many = [texts] if isinstance(texts, str | tuple) else list(texts)
    firsts, pairs = split(many)
    rows = np.zeros((len(many), head.num_labels), np.float32)
    for answer in run(functools.partial(_scores, head, params), firsts, pairs=pairs):
        rows[answer.rows] = answer.output
    names = labels or [f"LABEL_{i}" for i in range(head.num_labels)]
    found = [named(row, names) for row in rows]
    return found[0] if isinstance(texts, str | tuple) else found


def refuse_other_heads(head: nn.Module) -> None:
    """Raises ValueError unless `head` gives one answer a sequence."""
    if not isinstance(head, SequenceClassifier):
        raise ValueError(
            f"this model has no classifier but a {type(head).__name__}; make one with "
            'bert_jax.finetune(model, "classify", train=..., dev=...)'
        )


def split(texts: Sequence[Text]) -> tuple[list[str], list[str] | None]:
    """Texts and their second texts, which all have or none has."""
    paired = [isinstance(text, tuple) for text in texts]
    for row, text in enumerate(texts):
        if paired[row] != paired[0] or (paired[row] and len(text) != 2):
            raise ValueError(
                f"texts[{row}] is {text!r:.60}; give strings only, or only tuples of "
                "two strings"
            )
    if not any(paired):
        return list(texts), None
    firsts, seconds = zip(*texts, strict=True)
    return list(firsts), list(seconds)


def named(row: np.ndarray, names: Sequence[str]) -> list[Label] | float:
    """Classes with probabilities, the likeliest first; a float for regression."""
    if len(row) == 1:
        return float(row[0])
    order = np.argsort(-row, kind="stable")
    return [Label(names[i], float(row[i])) for i in order]


@functools.partial(jax.jit, static_argnums=0)
def _scores(head, params, batch: Mapping[str, jax.Array]) -> jax.Array:
    """Probabilities `[B, C]`, or numbers `[B, 1]`."""
    logits = head.apply({"params": params}, **batch).astype(jnp.float32)
    if head.problem_type == "multi_label_classification":
        return jax.nn.sigmoid(logits)
    return logits if head.num_labels == 1 else jax.nn.softmax(logits)
