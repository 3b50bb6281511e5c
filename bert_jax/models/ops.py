"""Functions with derivatives of their own, and dropout by an integer hash."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.random import define_prng_impl


def matmul(x: jax.Array, kernel: jax.Array, dtype: str) -> jax.Array:
    """`[..., D] @ [D, F] -> [..., F]`, as one product of two matrices.

    XLA on CPU is up to 15 % slower on products with three-dimensional operands.
    """
    y = dot(x.reshape(-1, x.shape[-1]).astype(dtype), kernel.astype(dtype))
    return y.reshape(*x.shape[:-1], kernel.shape[-1])


@jax.custom_vjp
def dot(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """`[N, D] @ [D, F] -> [N, F]` in the dtype of both, added up in float32.

    XLA's CPU backend multiplies bfloat16 at twice the rate of float32 if the result is
    declared float32 and the first factor lies in memory in the order of its axes;
    otherwise it converts both factors to float32 first. Other backends need neither,
    and there a float32 result would double what sums over devices transfer.
    """
    return _dot(x, kernel, 1, 0)


def _dot_backward(saved, g):
    x, kernel = saved
    return _dot(g, kernel, 1, 1), _dot(x, g, 0, 0)


dot.defvjp(lambda x, kernel: (dot(x, kernel), (x, kernel)), _dot_backward)


def _dot(a, b, i, j):
    """Sums over axis `i` of `a` and `j` of `b`."""

    def plain(a, b):
        return jax.lax.dot_general(a, b, (((i,), (j,)), ((), ())))

    def on_cpu(a, b):
        if i == 0:
            # Flat behind a barrier, or XLA would fold the transposition into the dot.
            flat = jax.lax.optimization_barrier(a.T.reshape(-1))
            a = flat.reshape(a.shape[::-1])
        axes = ((1,), (j,)), ((), ())
        y = jax.lax.dot_general(a, b, axes, preferred_element_type=jnp.float32)
        return y.astype(a.dtype)

    if a.dtype != jnp.bfloat16:
        return plain(a, b)
    return jax.lax.platform_dependent(a, b, cpu=on_cpu, default=plain)


@jax.custom_vjp
def add_bias(x: jax.Array, bias: jax.Array) -> jax.Array:
    """`[N, F] + [F]`."""
    return x + broadcast_row(bias, 2, x.dtype)


def _add_bias_backward(_, g):
    # Without the barrier XLA looks through the reshape of `x` and sums over B and L,
    # number by number where both are at most 32: a quarter of a step on short rows.
    rows = jax.lax.optimization_barrier(g)
    return g, rows.astype(jnp.float32).sum(0)


add_bias.defvjp(lambda x, bias: (add_bias(x, bias), None), _add_bias_backward)


def broadcast_row(vector: jax.Array, ndim: int, dtype: str | np.dtype) -> jax.Array:
    """`[F] -> [1, ..., F]` of rank `ndim`, so that no rank is promoted silently."""
    return vector.astype(dtype).reshape((1,) * (ndim - 1) + vector.shape)


@jax.custom_vjp
def lookup(table: jax.Array, ids: jax.Array) -> jax.Array:
    """Rows of a table: `[V, D]` at `[...]` -> `[..., D]`, NaN for an id outside of it.

    An id below 0 is outside, too, and does not count from the end. Raises ValueError
    for arrays on a mesh with explicit axes, with which no layer of Flax works.

    The gradients of a row are added up in float32 whatever the table's dtype is: in
    bfloat16 the sum over a frequent word would stop growing after some hundred terms.
    """
    _check_axes(table, ids)
    return table.at[ids].get(mode="fill", wrap_negative_indices=False)


def _lookup_backward(saved, g):
    table, ids = saved
    zeros = jnp.zeros(table.shape, jnp.float32)
    rows = zeros.at[ids]
    g = rows.add(g.astype(jnp.float32), wrap_negative_indices=False)
    return g.astype(table.dtype), None


def _check_axes(*arrays: jax.Array) -> None:
    for x in arrays:
        sharding = jax.typeof(x).sharding
        explicit = jax.sharding.AxisType.Explicit in sharding.mesh.axis_types
        if explicit and any(sharding.spec):
            raise ValueError(
                "an array is sharded over a mesh with explicit axes, which Flax's "
                "layers do not support; make it by jax.make_mesh(sizes, names, "
                "axis_types=(jax.sharding.AxisType.Auto,) * len(names))"
            )


lookup.defvjp(lambda table, ids: (lookup(table, ids), (table, ids)), _lookup_backward)


@jax.custom_vjp
def gelu(x: jax.Array) -> jax.Array:
    """Gaussian error linear unit through erf, as in every published BERT.

    The derivative is in closed form: autodiff of erf saves more arrays and fuses badly
    into the matrix products of the backward pass.
    """
    return jax.nn.gelu(x, approximate=False)


def _gelu_backward(x, g):
    cdf = 0.5 * (1 + jax.lax.erf(x * 0.5**0.5))
    pdf = jnp.exp(-0.5 * x * x) * 0.3989422804014327  # 1 / sqrt(2 pi)
    return (g * (cdf + x * pdf),)


gelu.defvjp(lambda x: (gelu(x), x), _gelu_backward)


def dropout(x: jax.Array, rate: float, key: jax.Array | None) -> jax.Array:
    """Element-wise dropout of `[B, ...]`; `key=None` returns `x` unchanged.

    Bits come from an integer hash of (two words of `key`, element number): threefry
    for every element costs a tenth of a training step, this costs nothing.
    """
    if key is None or rate == 0:
        return x
    return drop(x, hash_bits(key, x.shape), rate)


def drop(x: jax.Array, bits: jax.Array, rate: float) -> jax.Array:
    """Zeroes `x` where its uint32 `bits` are below the rate, and scales the others."""
    stays = bits >= jnp.uint32(rate * 2**32)
    return jnp.where(stays, x * (1 / (1 - rate)), 0).astype(x.dtype)


def hash_bits(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Independent uint32 words of `shape`."""
    return mix(*counters(key, shape, 1))


def counters(
    key: jax.Array, shape: tuple[int, ...], size: int
) -> tuple[jax.Array, jax.Array]:
    """The arguments of `mix` for the first elements in `hash_bits` of `[*shape, size]`.

    An element's number is that of its row times the elements of a row, plus its place
    in the row. Rows, the first axis, are numbered from 0, or as `with_rows` says.

    Returns:
      uint32 `shape`: the number of the first of each `size` elements.
      uint32: the second word of the key.
    """
    first, second = jax.random.key_data(key)[-2:]
    numbers = jax.lax.iota(jnp.uint32, math.prod(shape)).reshape(shape)
    if jax.random.key_impl(key) == _KEY_WITH_ROWS:
        start, stride = jax.random.key_data(key)[:2]
        row = jax.lax.broadcasted_iota(jnp.uint32, shape, 0)
        skipped = start + row * (stride - jnp.uint32(1))
        numbers += skipped * jnp.uint32(math.prod(shape[1:]))
    return numbers * jnp.uint32(size) + first, second


def with_rows(key: jax.Array, start: jax.Array | int, stride: int) -> jax.Array:
    """A key for rows `start`, `start + stride`, ... of a larger batch.

    Dropout with it draws for each row what it draws in the whole batch. The key stays
    one through `fold_in`, so modules need not know of it.

    >>> whole = hash_bits(key, (6, 4))
    >>> part = hash_bits(with_rows(key, 1, 3), (2, 4))
    >>> (part == whole[1::3]).all()
    Array(True, dtype=bool)
    """
    rows = jnp.stack([jnp.asarray(start, jnp.uint32), jnp.uint32(stride)])
    data = jnp.concatenate([rows, jax.random.key_data(key)[-2:]])
    return jax.random.wrap_key_data(data, impl=_KEY_WITH_ROWS)


def without_rows(key: jax.Array) -> jax.Array:
    """The key that `with_rows` was given, for arrays that all rows share."""
    if jax.random.key_impl(key) != _KEY_WITH_ROWS:
        return key
    return _inner(jax.random.key_data(key))


def _inner(data: jax.Array) -> jax.Array:
    return jax.random.wrap_key_data(data[2:], impl="threefry2x32")


def _outer(data: jax.Array, key: jax.Array) -> jax.Array:
    words = jax.random.key_data(key)
    rows = jnp.broadcast_to(data[:2], (*words.shape[:-1], 2))
    return jnp.concatenate([rows, words], axis=-1)


# Four words: the first row and the distance between rows, and a key of threefry.
_KEY_WITH_ROWS = define_prng_impl(
    key_shape=(4,),
    seed=lambda seed: _outer(jnp.array([0, 1], jnp.uint32), jax.random.key(seed)),
    split=lambda data, shape: _outer(data, jax.random.split(_inner(data), shape)),
    random_bits=lambda data, width, shape: jax.random.bits(
        _inner(data), shape, f"uint{width}"
    ),
    fold_in=lambda data, x: _outer(data, jax.random.fold_in(_inner(data), x)),
    name="key_with_rows",
    tag="rows",
)


def mix(x: jax.Array, second: jax.Array) -> jax.Array:
    """uint32 words from the numbers of elements, to which a first word was added.

    The finaliser of MurmurHash3 (Appleby, 2011); the second word of the key enters
    between its rounds, so that two keys never give shifted copies of one stream.
    """
    x = (x ^ (x >> 16)) * jnp.uint32(0x85EBCA6B)
    x = (x ^ (x >> 13) ^ second) * jnp.uint32(0xC2B2AE35)
    x = (x ^ (x >> 16)) * jnp.uint32(0x9E3779B9)
    return x ^ (x >> 15)
