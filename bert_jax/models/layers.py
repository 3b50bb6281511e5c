"""Layers shared by every encoder: dense, dropout, gelu, attention, MLP."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn


def kernel_init(stddev: float) -> Callable:
    """Normal cut at two standard deviations, as google-research/bert draws it.

    `stddev` is that of the normal before the cut: the real one is 0.88 of it.
    """
    return nn.initializers.truncated_normal(stddev)


class Dense(nn.Module):
    """`[..., D] -> [..., features]`: `x @ kernel + bias`."""

    features: int
    stddev: float = 0.02
    dtype: str = "float32"

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        shape = (x.shape[-1], self.features)
        kernel = self.param("kernel", kernel_init(self.stddev), shape)
        bias = self.param("bias", nn.initializers.zeros, (self.features,))
        y = flat_dot(x, kernel, self.dtype)
        return add_bias(y.reshape(-1, self.features), bias).reshape(y.shape)


@jax.custom_vjp
def add_bias(x: jax.Array, bias: jax.Array) -> jax.Array:
    """`[N, F] + [F]`."""
    return x + row(bias, 2, x.dtype)


def _add_bias_backward(_, g):
    # XLA would see through the reshape of `x` and sum over B and L, number by number
    # where both are at most 32: a quarter of a step on short rows.
    kept = jax.lax.optimization_barrier(g)
    return g, kept.astype(jnp.float32).sum(0)


add_bias.defvjp(lambda x, bias: (add_bias(x, bias), None), _add_bias_backward)


def flat_dot(x: jax.Array, kernel: jax.Array, dtype: str) -> jax.Array:
    """`[..., D] @ [D, F] -> [..., F]`, as one matrix product of two matrices.

    XLA on CPU is up to 15 % slower on products with three-dimensional operands.
    """
    y = x.reshape(-1, x.shape[-1]).astype(dtype) @ kernel.astype(dtype)
    return y.reshape(*x.shape[:-1], kernel.shape[-1])


def row(vector: jax.Array, ndim: int, dtype: str) -> jax.Array:
    """`[F] -> [1, ..., F]` of rank `ndim`, so that no rank is promoted silently."""
    return vector.astype(dtype).reshape((1,) * (ndim - 1) + vector.shape)


def sinusoids(positions: int, features: int) -> np.ndarray:
    """A table of positions that is not learnt, float32 `[positions, features]`.

    Sine and cosine take turns along the features, each pair at a frequency of its own
    (Vaswani et al., 2017, section 3.5). There, words are multiplied by the root of
    `features` before (section 3.4); as a norm follows here, to divide the sinusoids by
    it is the same.
    """
    pair, is_cosine = np.divmod(np.arange(features), 2)
    # In float32 the angles of late positions would be off in the fifth digit.
    angles = np.divide.outer(np.arange(positions), 10000.0 ** (2 * pair / features))
    table = np.where(is_cosine == 1, np.cos(angles), np.sin(angles))
    return (table / features**0.5).astype(np.float32)


class LayerNorm(nn.Module):
    """`[..., D] -> [..., D]`; statistics in float32 whatever `dtype` is."""

    eps: float
    dtype: str = "float32"

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        scale = self.param("scale", nn.initializers.ones, (x.shape[-1],))
        bias = self.param("bias", nn.initializers.zeros, (x.shape[-1],))
        x = x.astype(jnp.float32)
        x -= x.mean(-1, keepdims=True)
        x *= jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + self.eps)
        x = x * row(scale, x.ndim, "float32") + row(bias, x.ndim, "float32")
        return x.astype(self.dtype)


@jax.custom_vjp
def gelu(x: jax.Array) -> jax.Array:
    """Gaussian error linear unit through erf, as in every published BERT.

    The derivative is given in closed form: autodiff of erf saves more arrays and
    fuses badly into the matrix products of the backward pass.
    """
    return jax.nn.gelu(x, approximate=False)


def _gelu_backward(x, g):
    cdf = 0.5 * (1 + jax.lax.erf(x * 0.5**0.5))
    pdf = jnp.exp(-0.5 * x * x) * 0.3989422804014327  # 1 / sqrt(2 pi)
    return (g * (cdf + x * pdf),)


gelu.defvjp(lambda x: (gelu(x), x), _gelu_backward)

# Names as in a published config.json. "gelu_new" is the tanh approximation, and has
# other names too.
ACTIVATIONS = {
    "gelu": gelu,
    "gelu_python": gelu,
    "gelu_new": jax.nn.gelu,
    "gelu_fast": jax.nn.gelu,
    "gelu_pytorch_tanh": jax.nn.gelu,
    "quick_gelu": lambda x: x * jax.nn.sigmoid(1.702 * x),
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
    "swish": jax.nn.silu,
    "tanh": jnp.tanh,
}


class Dropout(nn.Module):
    """Zeroes each element with probability `rate` and rescales the others."""

    rate: float

    @nn.compact
    def __call__(self, x: jax.Array, deterministic: bool) -> jax.Array:
        if deterministic or self.rate == 0:
            return x
        return dropout(x, self.rate, self.make_rng("dropout"))


def dropout(x: jax.Array, rate: float, key: jax.Array | None) -> jax.Array:
    """Element-wise dropout; `key=None` leaves `x` as it is.

    Bits come from an integer hash of (two words of `key`, element number): threefry
    for every element costs a tenth of a training step, this costs nothing.
    """
    if key is None or rate == 0:
        return x
    keep = hash_bits(key, x.shape) >= jnp.uint32(rate * 2**32)
    return jnp.where(keep, x * (1 / (1 - rate)), 0).astype(x.dtype)


def hash_bits(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Independent uint32 words of `shape`.

    The finaliser of MurmurHash3 (Appleby, 2011); the second word of the key enters
    between its rounds, so that two keys never give shifted copies of one stream.
    """
    first, second = jax.random.bits(key, (2,), jnp.uint32)
    size = 1
    for n in shape:
        size *= n
    x = jax.lax.iota(jnp.uint32, size).reshape(shape) + first
    x = (x ^ (x >> 16)) * jnp.uint32(0x85EBCA6B)
    x = (x ^ (x >> 13) ^ second) * jnp.uint32(0xC2B2AE35)
    x = (x ^ (x >> 16)) * jnp.uint32(0x9E3779B9)
    return x ^ (x >> 15)


def visible(attention_mask: jax.Array) -> jax.Array:
    """Which token sees which: `[B, L]` or `[B, L, M]` integers -> bool `[B, 1, L, M]`.

    0 is padding; a token sees the tokens whose value equals its own. The ordinary
    0/1 mask is one case, rows packed with several sequences (1 1 1 2 2 0) another.
    Padding, which no token sees, sees them all, as in every published BERT. A matrix
    `[B, L, M]` says it for each pair of tokens, 0 where the first does not see the
    second.
    """
    if attention_mask.ndim == 3:
        return (attention_mask > 0)[:, None]
    queries, keys = attention_mask[:, :, None], attention_mask[:, None, :]
    return (((queries == keys) | (queries == 0)) & (keys > 0))[:, None]


def attention_weights(query: jax.Array, key: jax.Array, mask: jax.Array) -> jax.Array:
    """Scaled dot-product attention (Vaswani et al., 2017, section 3.2.1).

    Args:
      query: `[B, L, H, K]`.
      key: `[B, M, H, K]`.
      mask: `[B, L]`, see `visible`.

    Returns:
      float32 `[B, H, L, M]`; rows sum to 1.
    """
    scores_BHLM = jnp.einsum("BLHK,BMHK->BHLM", query * query.shape[-1] ** -0.5, key)
    # The lowest finite number, not -inf: a row of padding must not become NaN.
    low = jnp.finfo(jnp.float32).min
    return jax.nn.softmax(
        jnp.where(visible(mask), scores_BHLM.astype(jnp.float32), low)
    )


def attend(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    mask: jax.Array,
    *,
    rate: float = 0.0,
    dropout_key: jax.Array | None = None,
) -> jax.Array:
    """Attention of `[B, L, H, K]` queries to `[B, M, H, K]` keys: `[B, L, H, K]`.

    Dropout falls on the weights, one draw for each (as in the BERT paper's code).
    """
    weights_BHLM = attention_weights(query, key, mask).astype(value.dtype)
    weights_BHLM = dropout(weights_BHLM, rate, dropout_key)
    return jnp.einsum("BHLM,BMHK->BLHK", weights_BHLM, value)


class Attention(nn.Module):
    """Multi-head self-attention: `[B, L, D] -> [B, L, D]`."""

    num_heads: int
    rate: float = 0.0
    stddev: float = 0.02
    dtype: str = "float32"

    @nn.compact
    def __call__(
        self, x: jax.Array, mask: jax.Array, *, deterministic: bool = True
    ) -> jax.Array:
        B, L, D = x.shape
        heads = (B, L, self.num_heads, D // self.num_heads)
        query, key, value = (
            Dense(D, self.stddev, self.dtype, name=name)(x).reshape(heads)
            for name in ("query", "key", "value")
        )
        if self.is_mutable_collection("intermediates"):
            self.sow("intermediates", "weights", attention_weights(query, key, mask))
        drops = self.rate > 0 and not deterministic
        dropout_key = self.make_rng("dropout") if drops else None
        y = attend(query, key, value, mask, rate=self.rate, dropout_key=dropout_key)
        return Dense(D, self.stddev, self.dtype, name="out")(y.reshape(x.shape))


class Mlp(nn.Module):
    """Two dense layers with an activation between: `[..., D] -> [..., D]`."""

    intermediate_size: int
    activation: Callable = gelu
    stddev: float = 0.02
    dtype: str = "float32"

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        up = Dense(self.intermediate_size, self.stddev, self.dtype, name="up")
        down = Dense(x.shape[-1], self.stddev, self.dtype, name="down")
        return down(self.activation(up(x)))
