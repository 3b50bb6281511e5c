"""Arrays as text in a page: rounded, compressed, base64."""

import base64
import zlib
from collections.abc import Iterable

import numpy as np


def round_shares(x: np.ndarray, bits: int) -> np.ndarray:
    """Numbers in [0, 1] as uint16 of `bits` bits, within `share_error(bits)`."""
    return np.rint(x * np.float64(2**bits - 1)).astype(np.uint16)


def share_error(bits: int) -> float:
    """The largest error of `round_shares`."""
    return 0.5 / (2**bits - 1)


def round_vectors(x: np.ndarray, bits: int) -> tuple[np.ndarray, np.ndarray]:
    """Numbers `[layers, H, L, K]` as uint16, and the step `[layers, H]` of each head.

    `restore_vectors` returns them within half a step.
    """
    most = 2 ** (bits - 1) - 1
    step = np.abs(x).max((2, 3)) / most
    step = np.where(step > 0, step, 1)
    return (np.rint(x / step[..., None, None]) + (most + 1)).astype(np.uint16), step


def restore_vectors(x: np.ndarray, step: np.ndarray, bits: int) -> np.ndarray:
    """The numbers that `round_vectors` rounded."""
    return (x.astype(np.float32) - 2 ** (bits - 1)) * step[..., None, None]


def pack(arrays: Iterable[np.ndarray]) -> str:
    """uint16 arrays, one after the other, as base64 of a zlib stream.

    The upper bytes of all numbers come first, then the lower: similar bytes compress
    better side by side.
    """
    numbers = np.concatenate([x.ravel() for x in arrays])
    # Of zlib's strategies, this is the fastest here and makes the smallest streams.
    squeeze = zlib.compressobj(9, strategy=zlib.Z_RLE)
    halves = (numbers >> 8).astype(np.uint8), numbers.astype(np.uint8)
    data = b"".join(squeeze.compress(half.tobytes()) for half in halves)
    return base64.b64encode(data + squeeze.flush()).decode()
