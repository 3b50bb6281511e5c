"""Arrays as text in a page: rounded, compressed, base64."""

import base64
import zlib
from collections.abc import Iterable

import numpy as np


def shares(x: np.ndarray, bits: int) -> np.ndarray:
    """Numbers in [0, 1] as uint16 of so many bits, within `share_error(bits)`."""
    return np.rint(x * np.float64(2**bits - 1)).astype(np.uint16)


def share_error(bits: int) -> float:
    """The most by which `shares` are off."""
    return 0.5 / (2**bits - 1)


def signed(x: np.ndarray, bits: int) -> tuple[np.ndarray, np.ndarray]:
    """Numbers `[layers, H, L, K]` as uint16, and the step `[layers, H]` of each head.

    `(signed - 2 ** (bits - 1)) * step` is within half a step of `x`.
    """
    most = 2 ** (bits - 1) - 1
    step = np.abs(x).max((2, 3)) / most
    step = np.where(step > 0, step, 1)
    return (np.rint(x / step[..., None, None]) + (most + 1)).astype(np.uint16), step


def unsigned(x: np.ndarray, step: np.ndarray, bits: int) -> np.ndarray:
    """What `signed` stands for."""
    return (x.astype(np.float32) - 2 ** (bits - 1)) * step[..., None, None]


def packed(arrays: Iterable[np.ndarray]) -> str:
    """uint16 arrays, one behind the other: base64 of a zlib stream.

    First the upper bytes of all numbers, then the lower: those look alike.
    """
    numbers = np.concatenate([x.ravel() for x in arrays])
    # Of the strategies this is the fastest here, and gives the smallest streams.
    squeeze = zlib.compressobj(9, strategy=zlib.Z_RLE)
    halves = (numbers >> 8).astype(np.uint8), numbers.astype(np.uint8)
    data = b"".join(squeeze.compress(half.tobytes()) for half in halves)
    return base64.b64encode(data + squeeze.flush()).decode()
