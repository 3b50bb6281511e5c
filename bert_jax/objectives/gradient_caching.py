"""Gradient caching: large batches of texts in the memory of a few (Gao et al., 2021).

A loss that compares all texts of a batch needs all their vectors at once, but not the
activations behind them. So texts are encoded chunk by chunk, only their vectors are
kept, and the backward pass encodes each chunk a second time.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from bert_jax.models import ops

# (inputs [N, ...], dropout key or None) -> vectors [N, E].
Encode = Callable[[Any, jax.Array | None], jax.Array]


def encode_in_chunks(
    encode: Encode, inputs: Any, key: jax.Array | None, chunk_size: int = 0
) -> jax.Array:
    """Vectors `[N, E]` of all texts, of which `chunk_size` are encoded at once.

    The gradient is that of the whole batch, dropout included: each text drops what it
    drops without chunks.

    Args:
      encode: encodes a chunk; its dropout has to come from `ops.dropout`.
      inputs: a tree of arrays `[N, ...]`.
      key: of dropout; None for none.
      chunk_size: the most texts in a chunk, which is the largest divisor of N that is
        not above it; 0 encodes all at once. Chunks are strided, so that every device
        holds texts of each.

    >>> double = lambda x, key: 2 * x
    >>> encode_in_chunks(double, jnp.arange(6.0)[:, None], None, 4)[:, 0]
    Array([ 0.,  2.,  4.,  6.,  8., 10.], dtype=float32)
    """
    count = len(jax.tree.leaves(inputs)[0])
    parts = count // largest_divisor(count, chunk_size or count)
    if parts == 1:
        return encode(inputs, None if key is None else ops.with_rows(key, 0, 1))
    chunks = jax.tree.map(
        lambda x: x.reshape(-1, parts, *x.shape[1:]).swapaxes(0, 1), inputs
    )

    def encode_chunk(number, chunk):
        part_key = None if key is None else ops.with_rows(key, number, parts)
        return number + 1, encode(chunk, part_key)

    # Inside of a scan nothing could merge the second pass with the first.
    body = jax.checkpoint(encode_chunk, prevent_cse=False)
    _, vectors = jax.lax.scan(body, jnp.uint32(0), chunks)
    return vectors.swapaxes(0, 1).reshape(count, -1)


def largest_divisor(number: int, most: int) -> int:
    """The largest divisor of a number that is not above `most`.

    >>> largest_divisor(48, 10)
    8
    """
    return max(d for d in range(1, min(number, most) + 1) if number % d == 0)
