"""Attention by Pallas on TPUs: splash attention, and our kernel that drops weights.

Both compute `layers.attend` of `[B, L, H, K]` under a mask `[B, L]`, as in
`masks.Mask.queries`; `interpret` computes the same on any platform. Importing this
module imports Pallas, an experimental part of JAX: see `select.Kernel.load`.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from bert_jax.models import ops


def load_splash() -> Callable[..., jax.Array]:
    """Splash attention: a tile of scores lives in the core's own memory only.

    Segment ids are the mask. Padding is a segment of its own: it sees padding.
    """
    from jax.experimental.pallas.ops.tpu.splash_attention import (
        BlockSizes,
        FullMask,
        LocalMask,
        MultiHeadMask,
        SegmentIds,
        make_splash_mha,
    )

    def splash(query, key, value, mask, *, window=None, interpret=False):
        _, L, H, K = query.shape
        block = max(n for n in (128, 256, 384, 512) if L % n == 0)
        seen = (
            FullMask((L, L))
            if window is None
            else LocalMask((L, L), (window, window), 0)
        )
        kernel = make_splash_mha(
            MultiHeadMask([seen] * H),
            block_sizes=BlockSizes(
                block_q=block,
                block_kv=block,
                block_q_dkv=block,
                block_kv_dkv=block,
                # One pass over the scores gives all three gradients.
                use_fused_bwd_kernel=True,
            ),
            head_shards=1,
            q_seq_shards=1,
            interpret=interpret,
        )

        def attend_row(query, key, value, mask):
            return kernel(query, key, value, segment_ids=SegmentIds(mask, mask))

        query, key, value = (x.swapaxes(1, 2) for x in (query * K**-0.5, key, value))
        return jax.vmap(attend_row)(query, key, value, mask).swapaxes(1, 2)

    return splash


def dropout_attention(
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
    """Attention with dropout of its weights: the scores of a row and head in one tile.

    Up to 512 tokens, whose float32 scores take a megabyte, a tile fits into the core's
    own memory. Neither scores nor dropout bits leave it: the backward pass computes
    both a second time, from queries, keys and the number of each weight, which also
    decides on the plain path.

    Args:
      starts: uint32 `[B, H]`, the number of the first weight of each row and head in
        the hash that draws dropout, see `ops.counters`.
      second: uint32, the second word of its key.
      rate: of dropout; 0 needs neither.
    """
    B, _, H, _ = query.shape
    if starts is None or second is None:
        starts, second = jnp.zeros((B, H), jnp.uint32), jnp.zeros((), jnp.uint32)
    heads_first = (x.swapaxes(1, 2) for x in (query, key, value))
    y = _attend(rate, interpret, *heads_first, mask, starts, second.reshape(1, 1))
    return y.swapaxes(1, 2)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _attend(rate, interpret, query, key, value, mask, starts, second):
    inputs = query, key, value, mask, starts, second
    return _run(_forward, 1, 2, rate, interpret, inputs)[0]


def _attend_forward(rate, interpret, *inputs):
    return _attend(rate, interpret, *inputs), inputs


def _attend_backward(rate, interpret, inputs, gradient):
    gradients = _run(_backward, 3, 5, rate, interpret, inputs, gradient)
    return *gradients, None, None, None


_attend.defvjp(_attend_forward, _attend_backward)


def _run(kernel, results, products, rate, interpret, inputs, *more):
    """A kernel for each row and head; its results have the shape of a query.

    `products` counts the products of `[L, L]` scores with `[L, K]` vectors.
    """
    query, key, value, mask, starts, second = inputs
    B, H, L, K = query.shape
    tile = pl.BlockSpec((None, None, L, K), lambda b, h: (b, h, 0, 0))
    return pl.pallas_call(
        functools.partial(kernel, rate=rate),
        grid=(B, H),
        in_specs=[
            pl.BlockSpec(memory_space=pltpu.SMEM),
            pl.BlockSpec(memory_space=pltpu.SMEM),
            # The mask as a column and as a row, which are compared.
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
    y[...] = _dot(weights, value[...], 1, 0).astype(y.dtype)


def _backward(
    starts, second, queries, keys, query, key, value, gradient, *outputs, rate
):
    d_query, d_key, d_value = outputs
    weights = _weights(queries, keys, query, key)
    dropped = _dropped(weights.astype(value.dtype), starts, second, rate)
    d_value[...] = _dot(dropped, gradient[...], 0, 0).astype(d_value.dtype)
    d_weights = _dot(gradient[...], value[...], 1, 1)
    d_weights = _dropped(d_weights, starts, second, rate)
    inner = jnp.sum(d_weights * weights, -1, keepdims=True)
    d_scores = (weights * (d_weights - inner)).astype(query.dtype)
    scale = query.shape[-1] ** -0.5
    d_query[...] = (_dot(d_scores, key[...], 1, 0) * scale).astype(d_query.dtype)
    d_key[...] = (_dot(d_scores, query[...], 0, 0) * scale).astype(d_key.dtype)


def _weights(queries, keys, query, key):
    """Float32 `[L, L]`, as in `layers.attention_weights`."""
    scores = _dot(query[...] * query.shape[-1] ** -0.5, key[...], 1, 1)
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
    return ops.drop(x, ops.mix(numbers, second[0, 0]), rate)


def _dot(x, y, x_axis, y_axis):
    """A float32 product over one axis of each."""
    return jax.lax.dot_general(
        x,
        y,
        (((x_axis,), (y_axis,)), ((), ())),
        preferred_element_type=jnp.float32,
    )
