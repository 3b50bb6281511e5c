"""Dropout, by an integer hash of the number of each element."""

import math

import jax
import jax.numpy as jnp


def dropout(x: jax.Array, rate: float, key: jax.Array | None) -> jax.Array:
    """Element-wise dropout; `key=None` leaves `x` as it is.

    Bits come from an integer hash of (two words of `key`, element number): threefry
    for every element costs a tenth of a training step, this costs nothing.
    """
    if key is None or rate == 0:
        return x
    return kept(x, hash_bits(key, x.shape), rate)


def kept(x: jax.Array, bits: jax.Array, rate: float) -> jax.Array:
    """`x` where uint32 `bits` say that it stays, scaled, and 0 elsewhere."""
    stays = bits >= jnp.uint32(rate * 2**32)
    return jnp.where(stays, x * (1 / (1 - rate)), 0).astype(x.dtype)


def hash_bits(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Independent uint32 words of `shape`."""
    return mixed(*counters(key, shape, 1))


def counters(
    key: jax.Array, shape: tuple[int, ...], size: int
) -> tuple[jax.Array, jax.Array]:
    """How `hash_bits` of `[*shape, size]` begins: what `mixed` takes.

    Returns:
      uint32 `shape`: what the first of each `size` elements is counted from.
      uint32: the second word of the key.
    """
    first, second = jax.random.key_data(key)[-2:]
    numbers = jax.lax.iota(jnp.uint32, math.prod(shape)).reshape(shape)
    return numbers * jnp.uint32(size) + first, second


def mixed(x: jax.Array, second: jax.Array) -> jax.Array:
    """uint32 words from the numbers of elements, to which a first word was added.

    The finaliser of MurmurHash3 (Appleby, 2011); the second word of the key enters
    between its rounds, so that two keys never give shifted copies of one stream.
    """
    x = (x ^ (x >> 16)) * jnp.uint32(0x85EBCA6B)
    x = (x ^ (x >> 13) ^ second) * jnp.uint32(0xC2B2AE35)
    x = (x ^ (x >> 16)) * jnp.uint32(0x9E3779B9)
    return x ^ (x >> 15)


def flat_dot(x: jax.Array, kernel: jax.Array, dtype: str) -> jax.Array:
    """`[..., D] @ [D, F] -> [..., F]`, as one matrix product of two matrices.

    XLA on CPU is up to 15 % slower on products with three-dimensional operands.
    """
    y = product(x.reshape(-1, x.shape[-1]).astype(dtype), kernel.astype(dtype))
    return y.reshape(*x.shape[:-1], kernel.shape[-1])


@jax.custom_vjp
def product(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """`[N, D] @ [D, F] -> [N, F]` in the dtype of both, added up in float32.

    XLA's CPU backend multiplies bfloat16 at twice the rate of float32 where the result
    is said to be float32, and the first factor lies in memory as it is multiplied; it
    turns all others into float32 before. Other backends need none of this, and sums
    over devices would cross in float32.
    """
    return _dot(x, kernel, 1, 0)


def _backward(saved, g):
    x, kernel = saved
    return _dot(g, kernel, 1, 1), _dot(x, g, 0, 0)


product.defvjp(lambda x, kernel: (product(x, kernel), (x, kernel)), _backward)


def _dot(a, b, i, j):
    """Sums over axis `i` of `a` and `j` of `b`."""

    def plain(a, b):
        return jax.lax.dot_general(a, b, (((i,), (j,)), ((), ())))

    def on_cpu(a, b):
        if i == 0:
            # Flat behind a barrier, or the compiler would fold the turn into the dot.
            flat = jax.lax.optimization_barrier(a.T.reshape(-1))
            a = flat.reshape(a.shape[::-1])
        axes = ((1,), (j,)), ((), ())
        y = jax.lax.dot_general(a, b, axes, preferred_element_type=jnp.float32)
        return y.astype(a.dtype)

    if a.dtype != jnp.bfloat16:
        return plain(a, b)
    return jax.lax.platform_dependent(a, b, cpu=on_cpu, default=plain)
