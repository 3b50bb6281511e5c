"""`Model.fill_mask`: the likeliest tokens at each mask."""

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from flax import linen as nn

from bert_jax.inference import batching, checks
from bert_jax.models import MaskedLM, PermutationLM, Pretraining
from bert_jax.tokenizers import Tokenizer
from bert_jax.tokenizers.text import listed

if TYPE_CHECKING:
    from bert_jax.inference.model import Model


class Guess(NamedTuple):
    """A token for a mask, and its probability.

    >>> ((best, *others),) = model.fill_mask("a [MASK] b", k=3)
    >>> best._fields, len(others)
    (('token', 'probability'), 2)
    """

    token: str
    probability: float


# For each mask of a text, its guesses.
Guesses = list[list[Guess]]


def fill_mask(
    model: "Model", texts: str | Sequence[str], k: int, batch_size: int
) -> Guesses | list[Guesses]:
    """See `Model.fill_mask`."""
    check_head(model.head)
    tokenizer = model.check_tokenizer()
    # A table of embeddings is often larger than the vocabulary: its last rows have no
    # token.
    size = min(model.config.vocab_size, tokenizer.vocab_size)
    checks.check_count("k", k)
    if not 1 <= k <= size:
        raise ValueError(f"k={k} is not between 1 and the {size} tokens")
    many, mask_id = listed(texts, "texts"), tokenizer.mask_id
    mask = tokenizer.id_to_token(mask_id)
    for row, text in enumerate(many):
        _check_mask(row, mask, mask in text, model.max_length)
    parts = model.head, k, size, mask_id, model.params
    step = functools.partial(_best_tokens, *parts)
    guesses: dict[int, Guesses] = {}
    for result in batching.run_texts(model, step, many, batch_size=batch_size):
        counts = (result.inputs["input_ids"] == mask_id).sum(1)
        for row, n, *best in zip(result.rows, counts, *result.output, strict=True):
            _check_mask(row, mask, n > 0, model.max_length)
            guesses[row] = _guesses(tokenizer, *(x[:n] for x in best))
    if isinstance(texts, str):
        return guesses[0]
    return [guesses[row] for row in range(len(many))]


def check_head(head: nn.Module) -> None:
    """Checks that `head` scores the tokens of the vocabulary at each mask."""
    checks.check_head(
        head,
        (Pretraining, MaskedLM, PermutationLM),
        "fill masks",
        "load a checkpoint that was pre-trained with a masked LM head",
    )


def _best_tokens(
    head: nn.Module,
    k: int,
    size: int,
    mask_id: int,
    params: Mapping[str, Any],
    batch: batching.Batch,
) -> tuple[jax.Array, jax.Array]:
    """Probabilities and ids of the best of the first `size` ids at each mask.

    Both are `[B, P, k]`. P is a power of two that holds the masks of any row. A row
    with fewer masks repeats its first one, so that no other token is hidden.
    """
    is_mask = batch["input_ids"] == mask_id
    most = max(is_mask.sum(1).max(), 1)
    P = min(batching.power_of_two(int(most)), is_mask.shape[1])
    positions = np.argsort(~is_mask, axis=1, kind="stable")[:, :P]
    is_real = np.take_along_axis(is_mask, positions, axis=1)
    positions = np.where(is_real, positions, positions[:, :1])
    return _top_k(head, k, size, params, batch, positions)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _top_k(
    head: nn.Module,
    k: int,
    size: int,
    params: Mapping[str, Any],
    batch: Mapping[str, Any],
    positions: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    output: Any = head.apply({"params": params}, **batch, positions=positions)
    logits = output[0] if isinstance(head, Pretraining) else output
    probabilities = jax.nn.softmax(logits.astype(np.float32))
    return jax.lax.top_k(probabilities[..., :size], k)


def _guesses(
    tokenizer: Tokenizer, probabilities: np.ndarray, ids: np.ndarray
) -> Guesses:
    """The guesses of one text, from arrays `[P, k]`."""
    return [
        [Guess(_spelling(tokenizer, i), float(p)) for p, i in zip(*pair, strict=True)]
        for pair in zip(probabilities, ids, strict=True)
    ]


def _spelling(tokenizer: Tokenizer, token_id: int) -> str:
    """A token as people write it; a special one by its name."""
    text = tokenizer.decode([token_id]).strip()
    return text or tokenizer.id_to_token(token_id)


def _check_mask(row: int, mask: str, has_mask: bool, max_length: int) -> None:
    if not has_mask:
        raise ValueError(
            f"text {row} has no {mask} in its first {max_length} tokens; "
            "write one in place of a word"
        )
