"""Attention that drops weights, for TPUs: all scores of a row and a head in one tile.

Up to 512 tokens, whose float32 scores take a megabyte, a tile fits into the core's own
memory. Neither scores nor draws leave it: the backward pass computes both anew, from
queries, keys and the number of each weight, by which the plain path draws, too.
"""

import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from bert_jax.models import ops


def attend(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    mask: jax.Array,
    starts: jax.Array | None = None,
    second: jax.Array | None = None,
    *,
    rate: float = 0.0,
    interpret: bool = False,
) -> jax.Array:
    """`layers.attend` of `[B, L, H, K]` under a mask `[B, L]`.

    Args:
      starts: uint32 `[B, H]`, the number of the first weight of each row and head in
        the hash that draws dropout, see `dropping.mixed`.
      second: uint32, the second word of its key.
      rate: of dropout; 0 needs neither.
      interpret: computes the same on any platform.
    """
    B, _, H, _ = query.shape
    if starts is None:
        starts, second = jnp.zeros((B, H), jnp.uint32), jnp.uint32(0)
    heads_first = (x.swapaxes(1, 2) for x in (query, key, value))
    y = _attend(rate, interpret, *heads_first, mask, starts, second.reshape(1, 1))
    return y.swapaxes(1, 2)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _attend(rate, interpret, query, key, value, mask, starts, second):
    given = query, key, value, mask, starts, second
    return _run(_forward, 1, 2, rate, interpret, given)[0]


def _attend_forward(rate, interpret, *given):
    return _attend(rate, interpret, *given), given


def _attend_backward(rate, interpret, given, gradient):
    found = _run(_backward, 3, 5, rate, interpret, given, gradient)
    return *found, None, None, None


_attend.defvjp(_attend_forward, _attend_backward)


def _run(kernel, results, products, rate, interpret, given, *more):
    """A kernel for each row and head, whose results have the shape of a query.

    `products` is how many there are of `[L, L]` scores with `[L, K]` vectors.
    """
    query, key, value, mask, starts, second = given
    B, H, L, K = query.shape
    tile = pl.BlockSpec((None, None, L, K), lambda b, h: (b, h, 0, 0))
    return pl.pallas_call(
        functools.partial(kernel, rate=rate),
        grid=(B, H),
        in_specs=[
            pl.BlockSpec(memory_space=pltpu.SMEM),
            pl.BlockSpec(memory_space=pltpu.SMEM),
            # Once as a column and once as a row, which are compared.
            pl.BlockSpec((None, L, 1), lambda b, h: (b, 0, 0)),
            pl.BlockSpec((None, 1, L), lambda b, h: (b, 0, 0)),
            *[tile] * (3 + len(more)),
        ],
        out_specs=[tile] * results,
        out_shape=[jax.ShapeDtypeStruct(query.shape, query.dtype)] * results,
        cost_estimate=pl.CostEstimate(
            flops=2 * products * B * H * L * L * K,
            transcendentals=B * H * L * L,
            bytes_accessed=(3 + len(more) + results) * query.size * query.itemsize,
        ),
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "parallel")
        ),
        interpret=interpret,
    )(starts, second, mask[:, :, None], mask[:, None, :], query, key, value, *more)


def _forward(starts, second, queries, keys, query, key, value, y, *, rate):
    weights = _weights(queries, keys, query, key)
    weights = _dropped(weights.astype(value.dtype), starts, second, rate)
    y[...] = _product(weights, value[...], 1, 0).astype(y.dtype)


def _backward(starts, second, queries, keys, query, key, value, gradient, *found, rate):
    d_query, d_key, d_value = found
    weights = _weights(queries, keys, query, key)
    dropped = _dropped(weights.astype(value.dtype), starts, second, rate)
    d_value[...] = _product(dropped, gradient[...], 0, 0).astype(d_value.dtype)
    d_weights = _product(gradient[...], value[...], 1, 1)
    d_weights = _dropped(d_weights, starts, second, rate)
    inner = jnp.sum(d_weights * weights, -1, keepdims=True)
    d_scores = (weights * (d_weights - inner)).astype(query.dtype)
    scale = query.shape[-1] ** -0.5
    d_query[...] = (_product(d_scores, key[...], 1, 0) * scale).astype(d_query.dtype)
    d_key[...] = (_product(d_scores, query[...], 0, 0) * scale).astype(d_key.dtype)


def _weights(queries, keys, query, key):
    """Float32 `[L, L]`, as `layers.attention_weights` has them."""
    scores = _product(query[...] * query.shape[-1] ** -0.5, key[...], 1, 1)
    seen = ((queries[...] == keys[...]) | (queries[...] == 0)) & (keys[...] > 0)
    scores = jnp.where(seen, scores, jnp.finfo(jnp.float32).min)
    powers = jnp.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def _dropped(x, starts, second, rate):
    """`[L, L]` with dropout by the numbers of its elements."""
    if not rate:
        return x
    L = x.shape[0]
    rows, columns = (jax.lax.broadcasted_iota(jnp.uint32, x.shape, i) for i in (0, 1))
    numbers = (
        rows * jnp.uint32(L) + columns + starts[pl.program_id(0), pl.program_id(1)]
    )
    return ops.kept(x, ops.mixed(numbers, second[0, 0]), rate)


def _product(x, y, of_x, of_y):
    """A float32 product over one axis of each."""
    return jax.lax.dot_general(
        x, y, (((of_x,), (of_y,)), ((), ())), preferred_element_type=jnp.float32
    )
