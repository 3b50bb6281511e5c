"""Attention by cuDNN on NVIDIA GPUs: how its arguments follow from our mask.

Query, key and value are `[B, L, H, K]` in bfloat16 or float16, and `mask` `[B, L]` is
that of `layers.visible`. What cuDNN cannot say of a mask gives NaN, not wrong numbers.
"""

import jax
import jax.numpy as jnp

# The most sequences in a row of `attend_packed`: as many as recipes put there unless
# they say otherwise. Each costs work in all rows, also in those that lack it.
PACKED = 8


def attend(
    query: jax.Array, key: jax.Array, value: jax.Array, mask: jax.Array
) -> jax.Array:
    """cuDNN's fused attention, for masks of 1 followed by 0.

    Padding sees the sequence, as on the plain path. A row with another mask gives NaN.
    """
    lengths = mask.sum(1, dtype=jnp.int32)
    fits = (mask == (jnp.arange(mask.shape[1])[None] < lengths[:, None])).all(1)
    return jax.nn.dot_product_attention(
        _marked(query, fits),
        key,
        value,
        # Over no key at all a softmax would be NaN.
        key_value_seq_lengths=jnp.maximum(lengths, 1),
        implementation="cudnn",
    )


def attend_packed(
    query: jax.Array, key: jax.Array, value: jax.Array, mask: jax.Array
) -> jax.Array:
    """cuDNN's fused attention within each sequence, on GPUs from Hopper on.

    Sequences are runs of one value; padding is one too, and sees padding, for cuDNN
    leaves what belongs to none unwritten. A row of more than `PACKED` sequences, or
    with one value in two places, gives NaN.
    """
    # JAX makes lengths public (see `attend`), offsets not yet.
    from jax._src.cudnn import fused_attention_stablehlo as private

    lengths, starts, fits = runs(mask, PACKED + 1)
    return private.dot_product_attention(
        _marked(query, fits),
        key,
        value,
        q_seqlen=lengths,
        kv_seqlen=lengths,
        q_offsets=starts,
        kv_offsets=starts,
        scale=query.shape[-1] ** -0.5,
        mask_type=private.MaskType.PADDING,
    )


def runs(mask: jax.Array, most: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The runs of equal values in each row of `mask` `[B, L]`.

    Returns:
      Their lengths, int32 `[B, most]`; where they start, int32 `[B, most + 1]`, both -1
      behind the last one; and whether these are all of a row and no two of them have
      the same value but 0, bool `[B]`.
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


def _marked(query, fits):
    """NaN, which no one overlooks, in the rows that do not fit."""
    return jnp.where(fits[:, None, None, None], query, jnp.nan)
