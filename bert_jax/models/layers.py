"""Layers shared by every encoder: dense, dropout, gelu, attention, MLP."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from flax import struct

from bert_jax.models import ops
from bert_jax.models.kernels import select
from bert_jax.models.ops import dropout


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
    use_bias: bool = True

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        shape = (x.shape[-1], self.features)
        kernel = self.param("kernel", kernel_init(self.stddev), shape)
        y = ops.flat_dot(x, kernel, self.dtype)
        if not self.use_bias:
            return y
        bias = self.param("bias", nn.initializers.zeros, (self.features,))
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


@jax.custom_vjp
def lookup(table: jax.Array, ids: jax.Array) -> jax.Array:
    """Rows of a table: `[V, D]` at `[...]` -> `[..., D]`, NaN for an id outside of it.

    What comes back to a row is added up in float32 whatever the table's dtype: in
    bfloat16 the sum over a common word stands still after some hundred terms.
    """
    return jnp.take(table, ids, axis=0, mode="fill")


def _lookup_backward(saved, g):
    table, ids = saved
    zeros = jnp.zeros(table.shape, jnp.float32)
    return zeros.at[ids].add(g.astype(jnp.float32)).astype(table.dtype), None


lookup.defvjp(lambda table, ids: (lookup(table, ids), (table, ids)), _lookup_backward)


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
    use_bias: bool = True

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        scale = self.param("scale", nn.initializers.ones, (x.shape[-1],))
        x = x.astype(jnp.float32)
        x -= x.mean(-1, keepdims=True)
        x *= jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + self.eps)
        x *= row(scale, x.ndim, "float32")
        if self.use_bias:
            bias = self.param("bias", nn.initializers.zeros, (x.shape[-1],))
            x += row(bias, x.ndim, "float32")
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

# As in a published config.json; "gelu_new", by many names, is the tanh approximation.
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


@struct.dataclass
class Mask:
    """Which token sees which.

    `queries` are `[B, L]` integers: 0 is padding; a token sees the tokens whose value
    equals its own. The ordinary 0/1 mask is one case, rows packed with several
    sequences (1 1 1 2 2 0) another; `[B, L, M]` say it of each pair of tokens, 0 where
    the first does not see the second. `keys` `[B, M]` are those of what is looked at.
    Of these a token sees no more than `window` positions to either side, and with
    `causal` none after its own; None for `positions` `[B, L]` counts 0, 1, 2, ...
    """

    queries: jax.Array
    keys: jax.Array | None = None
    positions: jax.Array | None = None
    window: int | None = struct.field(pytree_node=False, default=None)
    causal: bool = struct.field(pytree_node=False, default=False)


def visible(mask: jax.Array | Mask) -> jax.Array:
    """Which token sees which: a `Mask`, or its `queries` -> bool `[B, 1, L, M]`.

    Padding, which no token sees, sees all of its row, as in every published BERT.
    """
    mask = mask if isinstance(mask, Mask) else Mask(mask)
    if mask.queries.ndim == 3:
        return (mask.queries > 0)[:, None]
    queries = mask.queries[:, :, None]
    keys = (mask.queries if mask.keys is None else mask.keys)[:, None, :]
    seen = ((queries == keys) | (queries == 0)) & (keys > 0)
    positions = mask.positions
    positions = jnp.arange(keys.shape[2])[None] if positions is None else positions
    if mask.window is not None:
        seen &= abs(positions[:, None, :] - positions[:, :, None]) <= mask.window
    if mask.causal:
        seen &= positions[:, None, :] <= positions[:, :, None]
    return seen[:, None]


def attention_weights(query: jax.Array, key: jax.Array, mask: Any) -> jax.Array:
    """Scaled dot-product attention (Vaswani et al., 2017, section 3.2.1).

    `[B, L, H, K]` queries, `[B, M, H, K]` keys and a mask as `visible` takes it ->
    float32 `[B, H, L, M]`; rows sum to 1.

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
    mask: Any,
    *,
    rate: float = 0.0,
    dropout_key: jax.Array | None = None,
    kernel: str = "plain",
) -> jax.Array:
    """Attention of `[B, L, H, K]` queries to `[B, M, H, K]` keys: `[B, L, H, K]`.

    Dropout falls on the weights, one draw for each (as in the BERT paper's code).
    `kernel` names one of `fused.KERNELS`, for what it takes; the path below takes all.
    """
    mask = mask if isinstance(mask, Mask) else Mask(mask)
    dropout_key = dropout_key if rate else None
    if select.takes(kernel, query, mask, drops=dropout_key is not None):
        return select.attend(kernel, query, key, value, mask, rate, dropout_key)
    weights_BHLM = attention_weights(query, key, mask).astype(value.dtype)
    weights_BHLM = dropout(weights_BHLM, rate, dropout_key)
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
        mask: Any,
        *,
        memory: jax.Array | None = None,
        turn: Callable = lambda x: x,
        deterministic: bool = True,
    ) -> jax.Array:
        """Lets `x` look at `memory` `[B, M, D]`, or at itself where that is None.

        `mask`: see `visible`; `turn` is done to queries and keys `[B, L, H, K]`.
        """
        D, memory = x.shape[-1], x if memory is None else memory

        def project(name, x):
            dense = Dense(D, self.stddev, self.dtype, self.use_bias, name=name)
            return dense(x).reshape(*x.shape[:2], self.num_heads, D // self.num_heads)

        query, key = turn(project("query", x)), turn(project("key", memory))
        value = project("value", memory)
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
    activation: Callable = gelu
    stddev: float = 0.02
    dtype: str = "float32"

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        up = Dense(self.intermediate_size, self.stddev, self.dtype, name="up")
        down = Dense(x.shape[-1], self.stddev, self.dtype, name="down")
        return down(self.activation(up(x)))


def angles(positions: jax.Array, features: int, theta: float) -> jax.Array:
    """Angles of rotary positions, section 3.2: `[B, L, K / 2]`.

    Pair i of a head's `features` turns by `theta ** (-2 i / features)` a position.
    """
    frequencies = theta ** -(np.arange(0, features, 2) / features)
    return positions[..., None] * jnp.asarray(frequencies, jnp.float32)[None, None]


def rotate(x: jax.Array, angles: jax.Array) -> jax.Array:
    """Turns `[B, L, H, K]` by `angles` `[B, L, K / 2]`: number i with number i + K / 2.

    Then a query's product with a key depends on the distance of their positions alone.
    """
    cos, sin = jnp.cos(angles)[:, :, None], jnp.sin(angles)[:, :, None]
    a, b = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    turned = jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)
    return turned.astype(x.dtype)
