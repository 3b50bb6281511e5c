"""The order of training: a seeded permutation computed per index, never stored.

A small Feistel network permutes the cells of a rectangle just large enough to number
all rows; an image beyond the last row is permuted again until it is a row (cycle
walking; Black & Rogaway, 2002). So the map is a bijection of range(size) for every
size, and any place in any epoch costs the same: resuming is O(1).
"""

import math

import numpy as np

_ROUNDS = 6
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # odd, the bits of the golden ratio


def permute(indices: np.ndarray, size: int, seed: int | tuple[int, ...]) -> np.ndarray:
    """Each index (int64) under the permutation of range(size) named by `seed`."""
    indices = np.asarray(indices)
    if indices.size and not 0 <= indices.min() <= indices.max() < size:
        raise ValueError(f"an index lies outside of range({size})")
    keys = np.random.SeedSequence(seed).generate_state(_ROUNDS, np.uint64)
    out = _feistel(indices.astype(np.uint64).ravel(), size, keys)
    outside = np.flatnonzero(out >= size)
    while outside.size:
        out[outside] = _feistel(out[outside], size, keys)
        outside = outside[out[outside] >= size]
    return out.astype(np.int64).reshape(indices.shape)


def epochs_and_rows(
    examples: np.ndarray, size: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Global example numbers [B] -> (epoch [B], row [B]): an epoch visits each of
    `size` rows once, in an order of its own."""
    epochs, places = np.divmod(np.asarray(examples, np.int64), size)
    rows = np.empty_like(places)
    for epoch in np.unique(epochs):
        now = epochs == epoch
        rows[now] = permute(places[now], size, (seed, int(epoch)))
    return epochs, rows


def _feistel(x: np.ndarray, size: int, keys: np.ndarray) -> np.ndarray:
    """A bijection of the cells of a rectangle of at least `size`, nearly square. Each
    round shifts one coordinate by a hash of the other, which can be undone."""
    width = math.isqrt(size - 1) + 1
    height = -(-size // width)
    row, column = np.divmod(x, np.uint64(width))
    for one, other in zip(keys[::2], keys[1::2], strict=True):
        _shift(row, np.uint64(height), column, one)
        _shift(column, np.uint64(width), row, other)
    return row * np.uint64(width) + column


def _shift(x: np.ndarray, modulus: np.uint64, other: np.ndarray, key) -> None:
    """x += hash(other, key), modulo `modulus`, in place."""
    h = (other ^ key) * _MULTIPLIER
    h ^= h >> np.uint64(29)
    h *= _MULTIPLIER
    h >>= np.uint64(32)
    h *= modulus
    h >>= np.uint64(32)  # 32 bits scaled to range(modulus), without a division
    x += h
    x -= modulus * (x >= modulus)
