"""Pooling functions: the vectors of a row's tokens become one.

`embed`, the training of sentence vectors and the heads of classifiers share them. A new
one is an entry of `MODES`.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from bert_jax.models.ops import broadcast_row


class Mode(NamedTuple):
    """One way to pool.

    Attributes:
      function: token vectors `[B, L, D]` and weights `[B, L]`, 1 for tokens and 0 for
        padding, -> `[B, D]`.
      flag: its field in the older settings of sentence-transformers, if there is one.
    """

    function: Callable[[jax.Array, jax.Array], jax.Array]
    flag: str | None = None


def check_modes(modes: Sequence[str]) -> None:
    """Raises ValueError for a mode that is not in `MODES`."""
    for mode in modes:
        if mode not in MODES:
            raise ValueError(
                f"pooling={mode!r} is unknown; choose one of {', '.join(MODES)}"
            )


def pool(x: jax.Array, mask: jax.Array | None, modes: Sequence[str]) -> jax.Array:
    """Token vectors `[B, L, D]` and mask `[B, L]` -> `[B, len(modes) * D]`.

    Padding, 0 in the mask, has no effect; without a mask there is none.
    """
    weights = jnp.ones(x.shape[:2]) if mask is None else (mask > 0).astype(jnp.float32)
    return jnp.concatenate([MODES[mode].function(x, weights) for mode in modes], -1)


def without_first(mask: jax.Array, count: jax.Array | int) -> jax.Array:
    """A mask `[B, L]` without the first `count` tokens of each row.

    `count` is one number or `[B, 1]`.

    >>> without_first(jnp.array([[0, 1, 1, 1], [1, 1, 0, 0]]), 1)
    Array([[0, 0, 1, 1],
           [0, 1, 0, 0]], dtype=int32)
    """
    real = (mask > 0).astype(jnp.int32)
    return mask * (jnp.cumsum(real, axis=1) > count)


# Class of torch.nn, as a published config.json names it -> the function.
ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "Identity": lambda x: x,
    "Tanh": jnp.tanh,
    "ReLU": jax.nn.relu,
    "GELU": lambda x: jax.nn.gelu(x, approximate=False),
    "Sigmoid": jax.nn.sigmoid,
    "SiLU": jax.nn.silu,
}


@struct.dataclass(eq=False)
class Dense:
    """A dense layer: `[..., D] -> [..., E]`, `activation(x @ kernel + bias)`.

    Attributes:
      kernel: float32 `[D, E]`.
      bias: float32 `[E]`; 0 for a layer without one.
      activation: a name in `ACTIVATIONS`.

    >>> layer = Dense(jnp.ones((2, 3)), jnp.zeros(3), "ReLU")
    >>> layer(jnp.array([[1.0, 2.0]]))
    Array([[3., 3., 3.]], dtype=float32)
    """

    kernel: jax.Array | np.ndarray
    bias: jax.Array | np.ndarray
    activation: str = struct.field(pytree_node=False, default="Tanh")

    def __call__(self, x: jax.Array) -> jax.Array:
        y = jnp.matmul(x, self.kernel, precision=jax.lax.Precision.HIGHEST)
        y += broadcast_row(jnp.asarray(self.bias), y.ndim, "float32")
        return ACTIVATIONS[self.activation](y)


def sentence_vectors(
    x: jax.Array,
    mask: jax.Array | None,
    modes: Sequence[str],
    dense: Sequence[Dense],
    normalize: bool,
) -> jax.Array:
    """Token vectors `[B, L, D]` and mask `[B, L]` -> one vector a row, `[B, E]`.

    They are pooled, go through dense layers, and are scaled to length 1 if `normalize`
    is True.
    """
    y = pool(x, mask, modes)
    for layer in dense:
        y = layer(y)
    return normalized(y) if normalize else y


def normalized(x: jax.Array) -> jax.Array:
    """`[..., D]` scaled to length 1."""
    # The limit is below the root, or the gradient of a vector of zeros would be NaN.
    return x / jnp.sqrt(jnp.maximum((x * x).sum(-1, keepdims=True), 1e-24))


def _cls(x: jax.Array, weights: jax.Array) -> jax.Array:
    return jnp.take_along_axis(x, weights.argmax(1)[:, None, None], axis=1)[:, 0]


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
