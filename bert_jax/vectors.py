"""Hidden states to vectors: of texts, and of the words in them."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class Words(NamedTuple):
    """Words of a text, where they stand in it `[W, 2]`, and their vectors `[W, D]`."""

    words: list[str]
    spans: np.ndarray
    vectors: np.ndarray


def pool(x: jax.Array, mask: jax.Array, modes: Sequence[str]) -> jax.Array:
    """Token vectors `[B, L, D]` and their mask `[B, L]` -> `[B, len(modes) * D]`.

    The modes are those of sentence-transformers; padding has no part in any.
    """
    weights = (mask > 0).astype(jnp.float32)
    return jnp.concatenate([_MODES[mode](x, weights) for mode in modes], axis=-1)


def normalized(x: jax.Array) -> jax.Array:
    """`[..., D]` scaled to length 1."""
    length = jnp.sqrt((x * x).sum(-1, keepdims=True))
    return x / jnp.maximum(length, 1e-12)


def _sum(x, weights):
    return jnp.einsum("BLD,BL->BD", x, weights)


def _mean(x, weights):
    return _sum(x, weights) / jnp.maximum(weights.sum(1), 1e-9)[:, None]


def _last(x, weights):
    last = weights.shape[1] - 1 - weights[:, ::-1].argmax(1)
    return jnp.take_along_axis(x, last[:, None, None], axis=1)[:, 0]


_MODES = {
    "cls": lambda x, weights: x[:, 0],
    "max": lambda x, weights: jnp.where(weights[..., None] > 0, x, -jnp.inf).max(1),
    "mean": _mean,
    "mean_sqrt_len_tokens": lambda x, weights: (
        _sum(x, weights) / jnp.sqrt(jnp.maximum(weights.sum(1), 1e-9))[:, None]
    ),
    "weightedmean": lambda x, weights: _mean(x, weights * weights.cumsum(1)),
    "lasttoken": _last,
}


def words_of(
    text: str, x: np.ndarray, offsets: np.ndarray, starts: np.ndarray, real: np.ndarray
) -> Words:
    """The words of one row, each the mean of its pieces.

    Args:
      text: what the row was made of.
      x: vectors of the tokens, `[L, D]`.
      offsets: where each token stands in the text, `[L, 2]`.
      starts: whether a token begins a word, `[L]`.
      real: whether a token is of the text, not special and not padding, `[L]`.
    """
    number = np.cumsum(starts & real)[real]  # of the word that each token is in
    if not len(number):
        return Words([], np.zeros((0, 2), int), np.zeros((0, x.shape[1]), np.float32))
    first = np.flatnonzero(np.diff(number, prepend=-1))
    counts = np.diff(first, append=len(number))
    last = first + counts - 1
    spans = np.stack([offsets[real][first, 0], offsets[real][last, 1]], 1)
    vectors = np.add.reduceat(x[real], first) / counts[:, None].astype(np.float32)
    return Words([text[a:b] for a, b in spans], spans, vectors)
