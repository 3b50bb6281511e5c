"""The verb `fill_mask`: the likeliest tokens where a mask is."""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from flax import linen as nn

from bert_jax.inference import jitted
from bert_jax.models import MaskedLM, PermutationLM, Pretraining
from bert_jax.tokenizers import Tokenizer
from bert_jax.tokenizers.text import listed


class Guess(NamedTuple):
    """A token that may stand where a mask is."""

    token: str
    probability: float


def filled(
    head: nn.Module,
    params: Any,
    tokenizer: Tokenizer,
    texts: str | Sequence[str],
    k: int,
    longest: int,
    run: Callable[..., Iterator[Any]],
) -> list[Any]:
    """See `Model.fill_mask`; `run(step, texts)` gives the answers of batches."""
    refuse_other_heads(head)
    # Tables of embeddings are often larger than the vocabulary: what is left over has
    # no token.
    size = min(head.encoder.config.vocab_size, tokenizer.vocab_size)
    if not 1 <= k <= size:
        raise ValueError(f"k={k} is not between 1 and the {size} tokens")
    many, mask_id = listed(texts, "texts"), tokenizer.mask_id
    mask = tokenizer.id_to_token(mask_id)
    for row, text in enumerate(many):
        _demand(row, mask, mask in text, longest)
    step = functools.partial(jitted.fillings, head, k, size, mask_id, params)
    found: list[Any] = [None] * len(many)
    for answer in run(step, many):
        counts = (answer.inputs["input_ids"] == mask_id).sum(1)
        for row, n, *best in zip(answer.rows, counts, *answer.output, strict=True):
            _demand(row, mask, n > 0, longest)
            found[row] = _guesses(tokenizer, *(x[:n] for x in best))
    return found[0] if isinstance(texts, str) else found


def refuse_other_heads(head: nn.Module) -> None:
    """Raises ValueError unless `head` gives a token for each mask."""
    if not isinstance(head, Pretraining | MaskedLM | PermutationLM):
        raise ValueError(
            f"this model has no masked LM head but a {type(head).__name__}; "
            "load a checkpoint that was pre-trained with one"
        )


def _guesses(tokenizer, probabilities: np.ndarray, ids: np.ndarray) -> list[Any]:
    """A list for each mask, from arrays `[P, k]`."""
    return [
        [Guess(_spelt(tokenizer, i), float(p)) for p, i in zip(*pair, strict=True)]
        for pair in zip(probabilities, ids, strict=True)
    ]


def _spelt(tokenizer, token_id):
    """A token as people write it; special ones by their names."""
    text = tokenizer.decode([token_id]).strip()
    return text or tokenizer.id_to_token(token_id)


def _demand(row, mask, has_mask, longest):
    if not has_mask:
        raise ValueError(
            f"text {row} has no {mask} in its first {longest} tokens; "
            "write one where a word is to go"
        )
