"""`Model.choose`: the likeliest of several choices to follow a context."""

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from bert_jax.files import counted
from bert_jax.inference import batching, checks
from bert_jax.models import MultipleChoice
from bert_jax.tokenizers.text import as_list

if TYPE_CHECKING:
    from bert_jax.inference.model import Model

Context = str | tuple[str, str]


class Choice(NamedTuple):
    """A choice and the probability that it is the right one.

    >>> best, other = chooser.choose("a b", ["c", "d e"])
    >>> round(best.probability + other.probability, 4)
    1.0
    """

    text: str
    probability: float


def choose(
    model: "Model",
    contexts: Context | Sequence[Context],
    choices: Sequence[str] | Sequence[Sequence[str]],
    batch_size: int,
) -> list[Choice] | list[list[Choice]]:
    """See `Model.choose`."""
    check_head(model.head)
    is_one = isinstance(contexts, str | tuple)
    many = [(contexts, choices)] if is_one else _pairs(contexts, choices)
    firsts: list[str] = []
    seconds: list[str] = []
    ends = []
    for row, (context, texts) in enumerate(many):
        first, opening = _split(row, context)
        _check_choices(row, texts)
        firsts += [first] * len(texts)
        seconds += [second_text(opening, text) for text in texts]
        ends.append(len(firsts))
    logits = np.zeros(len(firsts), np.float32)
    step = functools.partial(_scores, model.head, model.params)
    for result in batching.run_texts(
        model, step, firsts, seconds, batch_size=batch_size
    ):
        logits[result.rows] = result.output
    # The last part of the split is empty.
    by_row = zip(many, np.split(logits, ends), strict=False)
    ranked = [_ranked(texts, x) for (_, texts), x in by_row]
    return ranked[0] if is_one else ranked


def second_text(opening: str, choice: str) -> str:
    """The second text of a pair: a choice, after its opening if there is one."""
    return f"{opening} {choice}" if opening else choice


def check_head(head: nn.Module) -> None:
    """Checks that `head` scores choices."""
    checks.check_head(
        head,
        (MultipleChoice,),
        "choose",
        'train one with bert_jax.finetune(model, "choose", train=..., dev=...)',
    )


def _check_choices(row: int, choices: Any) -> None:
    is_list = isinstance(choices, Sequence) and not isinstance(choices, str)
    if not is_list or not choices or not all(isinstance(x, str) for x in choices):
        raise ValueError(
            f"choices[{row}] is {choices!r:.60}; give a list of strings to each context"
        )


def _pairs(contexts: Any, choices: Any) -> list[tuple[Any, Any]]:
    """Contexts, each with its choices."""
    contexts, choices = as_list(contexts, "contexts"), as_list(choices, "choices")
    if len(contexts) != len(choices):
        raise ValueError(
            f"{counted(len(contexts), 'context')} came with "
            f"{counted(len(choices), 'list')} of choices; give one list for each "
            "context"
        )
    return list(zip(contexts, choices, strict=True))


def _split(row: int, context: Any) -> tuple[str, str]:
    """A context and the opening of its choices."""
    parts = (context, "") if isinstance(context, str) else context
    if isinstance(parts, tuple) and len(parts) == 2:
        if all(isinstance(part, str) for part in parts):
            return parts
    raise ValueError(
        f"contexts[{row}] is {context!r:.60}; give a string, or a tuple of two: the "
        "context and the opening of every choice"
    )


def _ranked(choices: Sequence[str], logits: np.ndarray) -> list[Choice]:
    odds = np.exp(logits - logits.max())
    probabilities = odds / odds.sum()
    order = np.argsort(-probabilities, kind="stable")
    return [Choice(choices[i], float(probabilities[i])) for i in order]


@functools.partial(jax.jit, static_argnums=0)
def _scores(
    head: MultipleChoice, params: Mapping[str, Any], batch: Mapping[str, Any]
) -> jax.Array:
    """Logits `[B]` of rows `[B, L]`: the score of a choice depends on no other."""
    single = {name: x[:, None] for name, x in batch.items()}
    logits: Any = head.apply({"params": params}, **single)
    return logits[:, 0].astype(jnp.float32)
