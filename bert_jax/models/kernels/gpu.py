"""Attention by cuDNN on NVIDIA GPUs, with arguments made from our masks.

Query, key and value are `[B, L, H, K]` in bfloat16 or float16, and `mask` is `[B, L]`
as in `masks.Mask.queries`. A mask that cuDNN cannot express gives NaN, not wrong
numbers.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

# The most sequences in a row of packed attention: as many as recipes pack by default.
# Each costs work in all rows, also in those that have fewer.
PACKED = 8


def attend(
    query: jax.Array, key: jax.Array, value: jax.Array, mask: jax.Array
) -> jax.Array:
    """cuDNN's fused attention, for masks of ones followed by zeros.

    Padding sees the sequence, as on the plain path. A row with another mask gives NaN.
    """
    lengths = mask.sum(1, dtype=jnp.int32)
    fits = (mask == (jnp.arange(mask.shape[1])[None] < lengths[:, None])).all(1)
    return jax.nn.dot_product_attention(
        _nan_unless(fits, query),
        key,
        value,
        # Over no key at all a softmax would be NaN.
        key_value_seq_lengths=jnp.maximum(lengths, 1),
        implementation="cudnn",
    )


def load_packed() -> Callable[..., jax.Array]:
    """cuDNN's fused attention within each sequence, on GPUs from Hopper on.

    Sequences are runs of one value. Padding is one of them, and sees padding, because
    cuDNN leaves tokens that belong to no sequence unwritten. A row of more than
    `PACKED` sequences, or with one value in two places, gives NaN.

    Raises ImportError where JAX has moved its private module: `jax.nn` has an argument
    for lengths (see `attend`), but none for offsets.
    """
    from jax._src.cudnn.fused_attention_stablehlo import (
        MaskType,
        dot_product_attention,
    )

    def attend_packed(query, key, value, mask):
        lengths, starts, fits = runs(mask, PACKED + 1)
        return dot_product_attention(
            _nan_unless(fits, query),
            key,
            value,
            q_seqlen=lengths,
            kv_seqlen=lengths,
            q_offsets=starts,
            kv_offsets=starts,
            scale=query.shape[-1] ** -0.5,
            mask_type=MaskType.PADDING,
        )

    return attend_packed


def runs(mask: jax.Array, most: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The runs of equal values in each row of `mask` `[B, L]`.

    Returns:
      lengths: int32 `[B, most]`, -1 after the last run.
      starts: int32 `[B, most + 1]`, -1 after the last run.
      fits: bool `[B]`, whether these are all runs of a row and no two of them have the
        same value but 0.
    """
    changes = mask[:, 1:] != mask[:, :-1]
    number = jnp.pad(jnp.cumsum(changes, axis=1), ((0, 0), (1, 0)))
    holds = number[:, :, None] == jnp.arange(most)[None, None]
    lengths = holds.sum(1, dtype=jnp.int32)
    starts = jnp.cumsum(lengths, axis=1, dtype=jnp.int32) - lengths
    starts = jnp.pad(
        jnp.where(lengths > 0, starts, -1), ((0, 0), (0, 1)), constant_values=-1
    )
    values = jnp.where(holds, mask[:, :, None], 0).max(1)
    same = (values[:, :, None] == values[:, None]) & (values[:, None] > 0)
    again = jnp.triu(same, 1).any((1, 2))
    fits = (number[:, -1] < most) & ~again
    return jnp.where(lengths > 0, lengths, -1), starts, fits


def _nan_unless(fits, query):
    """NaN, which nobody overlooks, in the rows that do not fit."""
    return jnp.where(fits[:, None, None, None], query, jnp.nan)
