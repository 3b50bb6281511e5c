"""Layers that encoders share: dense, layer norm, dropout, attention, MLP, positions."""

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from bert_jax.models import ops
from bert_jax.models.kernels import select
from bert_jax.models.masks import Mask, visible


def kernel_init(stddev: float) -> Callable:
    """A normal distribution cut at two standard deviations, as in google-research/bert.

    `stddev` is that of the distribution before the cut; after it, it is 0.88 of that.
    """
    return nn.initializers.truncated_normal(stddev)


class Dense(nn.Module):
    """`[..., D] -> [..., features]`: `x @ kernel + bias`."""

    features: int
    stddev: float = 0.02
    dtype: str = "float32"
    use_bias: bool = True

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        shape = (x.shape[-1], self.features)
        kernel = self.param("kernel", kernel_init(self.stddev), shape)
        y = ops.matmul(x, kernel, self.dtype)
        if not self.use_bias:
            return y
        bias = self.param("bias", nn.initializers.zeros, (self.features,))
        return ops.add_bias(y.reshape(-1, self.features), bias).reshape(y.shape)


def sinusoids(positions: int, features: int) -> np.ndarray:
    """A fixed table of positions, float32 `[positions, features]`.

    Sines and cosines alternate along the features, with one frequency for each pair
    (Vaswani et al., 2017, section 3.5). The paper multiplies words by the root of
    `features` (section 3.4); here the sinusoids are divided by it instead, which is the
    same before a layer norm.
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
    use_bias: bool = True

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        scale = self.param("scale", nn.initializers.ones, (x.shape[-1],))
        x = x.astype(jnp.float32)
        x -= x.mean(-1, keepdims=True)
        x *= jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + self.eps)
        x *= ops.broadcast_row(scale, x.ndim, "float32")
        if self.use_bias:
            bias = self.param("bias", nn.initializers.zeros, (x.shape[-1],))
            x += ops.broadcast_row(bias, x.ndim, "float32")
        return x.astype(self.dtype)


# By the names in a published config.json; "gelu_new" is the tanh approximation, which
# has several names.
ACTIVATIONS: Mapping[str, Callable[[jax.Array], jax.Array]] = {
    "gelu": ops.gelu,
    "gelu_python": ops.gelu,
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
    """Zeroes each element with probability `rate` and rescales the others.

    `of_rows` is False for an array whose first axis is not that of the batch.
    """

    rate: float

    @nn.compact
    def __call__(
        self, x: jax.Array, deterministic: bool, *, of_rows: bool = True
    ) -> jax.Array:
        if deterministic or self.rate == 0:
            return x
        key = self.make_rng("dropout")
        return ops.dropout(x, self.rate, key if of_rows else ops.without_rows(key))


def attention_weights(
    query: jax.Array, key: jax.Array, mask: jax.Array | Mask
) -> jax.Array:
    """Scaled dot-product attention (Vaswani et al., 2017, section 3.2.1).

    `[B, L, H, K]` queries and `[B, M, H, K]` keys -> float32 `[B, H, L, M]`; rows sum
    to 1. For the mask see `masks.visible`.

    >>> query = key = jnp.ones((1, 3, 1, 4))
    >>> attention_weights(query, key, jnp.array([[1, 1, 0]]))[0, 0, 0]
    Array([0.5, 0.5, 0. ], dtype=float32)
    """
    scores_BHLM = jnp.einsum("BLHK,BMHK->BHLM", query * query.shape[-1] ** -0.5, key)
    # The lowest finite number, not -inf: a row of padding must not become NaN.
    low = jnp.finfo(jnp.float32).min
    scores_BHLM = scores_BHLM.astype(jnp.float32)
    return jax.nn.softmax(jnp.where(visible(mask), scores_BHLM, low))


def attend(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    mask: jax.Array | Mask,
    *,
    rate: float = 0.0,
    dropout_key: jax.Array | None = None,
    kernel: str = "plain",
) -> jax.Array:
    """Attention of `[B, L, H, K]` queries to `[B, M, H, K]` keys: `[B, L, H, K]`.

    Dropout applies to each weight, as in google-research/bert. `kernel` is the name of
    one of `select.KERNELS`, which computes the inputs that it takes; the code below,
    the plain path, computes all others.
    """
    mask = mask if isinstance(mask, Mask) else Mask(mask)
    dropout_key = dropout_key if rate else None
    if select.takes(kernel, query, mask, drops=dropout_key is not None):
        return select.attend(kernel, query, key, value, mask, rate, dropout_key)
    weights_BHLM = attention_weights(query, key, mask).astype(value.dtype)
    weights_BHLM = ops.dropout(weights_BHLM, rate, dropout_key)
    return jnp.einsum("BHLM,BMHK->BLHK", weights_BHLM, value)


class Attention(nn.Module):
    """Multi-head attention: `[B, L, D] -> [B, L, D]`."""

    num_heads: int
    rate: float = 0.0
    stddev: float = 0.02
    dtype: str = "float32"
    kernel: str = "plain"
    use_bias: bool = True
    out_stddev: float | None = None  # of the last kernel; None takes `stddev`

    @nn.compact
    def __call__(
        self,
        x: jax.Array,
        mask: jax.Array | Mask,
        *,
        memory: jax.Array | None = None,
        turn: Callable = lambda x: x,
        store: Callable = lambda key, value: (key, value),
        deterministic: bool = True,
    ) -> jax.Array:
        """Attends from `x` to `memory` `[B, M, D]`, or to `x` itself without one.

        For `mask` see `masks.visible`. `turn` transforms queries and keys
        `[B, L, H, K]`, for rotary positions. `store` takes the keys and values of
        `memory` and returns those to attend to, `[B, M, H, K]`, for a cache of them.
        """
        D, memory = x.shape[-1], x if memory is None else memory

        def project(name, x):
            dense = Dense(D, self.stddev, self.dtype, self.use_bias, name=name)
            return dense(x).reshape(*x.shape[:2], self.num_heads, D // self.num_heads)

        query, key = turn(project("query", x)), turn(project("key", memory))
        key, value = store(key, project("value", memory))
        if self.is_mutable_collection("intermediates"):
            self.sow("intermediates", "queries", query)
            self.sow("intermediates", "keys", key)
            self.sow("intermediates", "weights", attention_weights(query, key, mask))
        drops = self.rate > 0 and not deterministic
        dropout_key = self.make_rng("dropout") if drops else None
        y = attend(
            query,
            key,
            value,
            mask,
            rate=self.rate,
            dropout_key=dropout_key,
            kernel=self.kernel,
        )
        stddev = self.out_stddev or self.stddev
        out = Dense(D, stddev, self.dtype, self.use_bias, name="out")
        return out(y.reshape(x.shape))


class Mlp(nn.Module):
    """Two dense layers with an activation between: `[..., D] -> [..., D]`."""

    intermediate_size: int
    activation: Callable = ops.gelu
    stddev: float = 0.02
    dtype: str = "float32"
    out_stddev: float | None = None  # of the last kernel; None takes `stddev`

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        up = Dense(self.intermediate_size, self.stddev, self.dtype, name="up")
        out_stddev = self.out_stddev or self.stddev
        down = Dense(x.shape[-1], out_stddev, self.dtype, name="down")
        return down(self.activation(up(x)))


def angles(positions: jax.Array, features: int, theta: float) -> jax.Array:
    """Angles of rotary positions (Su et al., 2021, section 3.2): `[B, L, K / 2]`.

    Pair i of a head's `features` turns by `theta ** (-2 i / features)` a position.
    """
    frequencies = theta ** -(np.arange(0, features, 2) / features)
    return positions[..., None] * jnp.asarray(frequencies, jnp.float32)[None, None]


def rotate(x: jax.Array, angles: jax.Array) -> jax.Array:
    """Rotates `[B, L, H, K]` by `angles` `[B, L, K / 2]`: number i with i + K / 2.

    The product of a rotated query and key depends only on the distance of their
    positions.
    """
    cos, sin = jnp.cos(angles)[:, :, None], jnp.sin(angles)[:, :, None]
    a, b = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    turned = jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)
    return turned.astype(x.dtype)
