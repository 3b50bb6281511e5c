"""Hidden states to one vector a text."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp


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
