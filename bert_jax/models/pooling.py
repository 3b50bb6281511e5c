"""Pooling functions: the vectors of a row's tokens become one.

`embed` and the heads of classifiers share them. A new one is an entry of `MODES`.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp


class Mode(NamedTuple):
    """One way to pool.

    Attributes:
      function: token vectors `[B, L, D]` and weights `[B, L]`, 1 for tokens and 0 for
        padding, -> `[B, D]`.
      flag: its field in the older settings of sentence-transformers, if there is one.
    """

    function: Callable[[jax.Array, jax.Array], jax.Array]
    flag: str | None = None


def pool(x: jax.Array, mask: jax.Array | None, modes: Sequence[str]) -> jax.Array:
    """Token vectors `[B, L, D]` and mask `[B, L]` -> `[B, len(modes) * D]`.

    Padding, 0 in the mask, has no effect; without a mask there is none.
    """
    weights = jnp.ones(x.shape[:2]) if mask is None else (mask > 0).astype(jnp.float32)
    return jnp.concatenate([MODES[mode].function(x, weights) for mode in modes], -1)


def _cls(x: jax.Array, weights: jax.Array) -> jax.Array:
    return x[:, 0]


def _max(x: jax.Array, weights: jax.Array) -> jax.Array:
    return jnp.where(weights[..., None] > 0, x, -jnp.inf).max(1)


def _sum(x: jax.Array, weights: jax.Array) -> jax.Array:
    return jnp.einsum("BLD,BL->BD", x.astype(jnp.float32), weights)


def _mean(x: jax.Array, weights: jax.Array) -> jax.Array:
    return _sum(x, weights) / jnp.maximum(weights.sum(1), 1e-9)[:, None]


def _mean_sqrt(x: jax.Array, weights: jax.Array) -> jax.Array:
    return _sum(x, weights) / jnp.sqrt(jnp.maximum(weights.sum(1), 1e-9))[:, None]


def _weighted_mean(x: jax.Array, weights: jax.Array) -> jax.Array:
    return _mean(x, weights * weights.cumsum(1))


def _last(x: jax.Array, weights: jax.Array) -> jax.Array:
    last = weights.shape[1] - 1 - weights[:, ::-1].argmax(1)
    return jnp.take_along_axis(x, last[:, None, None], axis=1)[:, 0]


MODES = {
    "cls": Mode(_cls, "pooling_mode_cls_token"),
    "max": Mode(_max, "pooling_mode_max_tokens"),
    "mean": Mode(_mean, "pooling_mode_mean_tokens"),
    "mean_sqrt_len_tokens": Mode(_mean_sqrt, "pooling_mode_mean_sqrt_len_tokens"),
    "weightedmean": Mode(_weighted_mean, "pooling_mode_weightedmean_tokens"),
    "lasttoken": Mode(_last, "pooling_mode_lasttoken"),
}
