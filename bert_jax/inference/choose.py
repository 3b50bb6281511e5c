"""The verb `choose`: which of several choices goes on from a context."""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from bert_jax.models import MultipleChoice

Context = str | tuple[str, str]


class Choice(NamedTuple):
    """A choice and how probable it is to be the right one."""

    text: str
    probability: float


def chosen(
    head: nn.Module,
    params: Any,
    contexts: Context | Sequence[Context],
    choices: Sequence[str] | Sequence[Sequence[str]],
    run: Callable[..., Iterator[Any]],
) -> list[Any]:
    """See `Model.choose`; `run(step, texts, pairs=)` gives the answers of batches."""
    refuse_other_heads(head)
    alone = isinstance(contexts, str | tuple)
    many = [(contexts, choices)] if alone else _paired(contexts, choices)
    firsts, seconds, ends = [], [], []
    for row, (context, its) in enumerate(many):
        first, opening = _split(row, context)
        refuse_no_choices(row, its)
        firsts += [first] * len(its)
        seconds += [joined(opening, choice) for choice in its]
        ends.append(len(firsts))
    logits = np.zeros(len(firsts), np.float32)
    step = functools.partial(_scores, head, params)
    for answer in run(step, firsts, pairs=seconds):
        logits[answer.rows] = answer.output
    by_row = zip(many, np.split(logits, ends), strict=False)  # nothing stands last
    found = [_ranked(its, x) for (_, its), x in by_row]
    return found[0] if alone else found


def joined(opening: str, choice: str) -> str:
    """The second text of a pair: a choice behind what opens it, if anything does."""
    return f"{opening} {choice}" if opening else choice


def refuse_other_heads(head: nn.Module) -> None:
    """Raises ValueError unless `head` scores choices."""
    if not isinstance(head, MultipleChoice):
        raise ValueError(
            f"this model does not choose but has a {type(head).__name__}; make one by "
            'bert_jax.finetune(model, "choose", train=..., dev=...)'
        )


def refuse_no_choices(row: int, choices: Any) -> None:
    """Raises ValueError unless `choices` are some texts."""
    texts = isinstance(choices, Sequence) and not isinstance(choices, str)
    if not texts or not choices or not all(isinstance(x, str) for x in choices):
        raise ValueError(
            f"choices[{row}] is {choices!r:.60}; give a list of strings to each context"
        )


def _paired(contexts, choices):
    if not isinstance(contexts, Iterable) or not isinstance(choices, Iterable):
        raise ValueError(
            f"contexts={contexts!r:.60}, choices={choices!r:.60}; give a string and a "
            "list of strings, or lists of such"
        )
    contexts, choices = list(contexts), list(choices)
    if len(contexts) != len(choices):
        raise ValueError(
            f"{len(contexts)} contexts came with {len(choices)} lists of choices; give "
            "one list for each context"
        )
    return list(zip(contexts, choices, strict=True))


def _split(row, context):
    """A context, and what opens its choices."""
    parts = (context, "") if isinstance(context, str) else context
    if isinstance(parts, tuple) and len(parts) == 2:
        if all(isinstance(part, str) for part in parts):
            return parts
    raise ValueError(
        f"contexts[{row}] is {context!r:.60}; give a string, or a tuple of two: the "
        "context and what opens every choice"
    )


def _ranked(choices, logits):
    odds = np.exp(logits - logits.max())
    shares = odds / odds.sum()
    order = np.argsort(-shares, kind="stable")
    return [Choice(choices[i], float(shares[i])) for i in order]


@functools.partial(jax.jit, static_argnums=0)
def _scores(head, params, batch: Mapping[str, jax.Array]) -> jax.Array:
    """Logits `[B]` of rows `[B, L]`: the score of a choice knows of no other."""
    alone = {name: x[:, None] for name, x in batch.items()}
    return head.apply({"params": params}, **alone)[:, 0].astype(jnp.float32)
