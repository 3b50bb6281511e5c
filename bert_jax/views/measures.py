"""Measures of attention and of vectors, as functions of NumPy arrays."""

import numpy as np


def rollout(weights: np.ndarray) -> np.ndarray:
    """Attention through all layers up to each: `[layers, H, L, L] -> [layers, L, L]`.

    Attention rollout (Abnar and Zuidema, 2020, section 3). The output of a layer is
    taken as half of its input and half of the mean of its heads:
    `A = 0.5 mean + 0.5 I`, rows normalised. Row i of `rollout[n] = A[n] @ ... @ A[0]`
    has the share of each token of the text in the output of layer n for token i.
    Raises ValueError for other shapes.

    >>> rollout(np.full((2, 3, 2, 2), 0.5))[-1]
    array([[0.625, 0.375],
           [0.375, 0.625]], dtype=float32)
    """
    check_square(weights)
    length = weights.shape[-1]
    steps = 0.5 * weights.astype(np.float64).mean(1) + 0.5 * np.eye(length)
    steps /= steps.sum(-1, keepdims=True)
    for n in range(1, len(steps)):
        steps[n] = steps[n] @ steps[n - 1]
    return steps.astype(np.float32)


def attention_distance(weights: np.ndarray) -> np.ndarray:
    """The mean distance of each head, in tokens: `[layers, H, L, L] -> [layers, H]`.

    The mean over tokens i of the sum over j of `weights[i, j] |i - j|`, the attention
    distance of Vig and Belinkov (2019) on one text. Raises ValueError for other shapes.

    >>> attention_distance(np.full((1, 3, 2, 2), 0.5))
    array([[0.5, 0.5, 0.5]])
    """
    check_square(weights)
    place = np.arange(weights.shape[-1])
    apart = np.abs(np.subtract.outer(place, place))
    return np.einsum("NHLM,LM->NH", weights, apart) / len(place)


def attention_entropy(weights: np.ndarray) -> np.ndarray:
    """The entropy of each head, in nats: `[layers, H, L, M] -> [layers, H]`.

    The mean over tokens i of `-sum_j weights[i, j] log weights[i, j]`, as in Clark et
    al. (2019, "Focused vs Broad Attention"): 0 where every token looks at one token,
    log M where it looks at all of them equally. Raises ValueError for other shapes.

    >>> np.exp(attention_entropy(np.full((1, 3, 2, 4), 0.25))).round(4)
    array([[4., 4., 4.]])
    """
    check_shape(weights)
    logs = np.log(np.where(weights > 0, weights, 1))
    return -(weights * logs).sum(-1).mean(-1)


def mean_cosine(x: np.ndarray) -> float:
    """The mean cosine over all pairs of different rows of `x` `[N, D]`, N >= 2.

    For the vectors of one word in N contexts this is its self-similarity (Ethayarajh,
    2019): 1 where context changes nothing.

    >>> round(mean_cosine(np.array([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]])), 4)
    0.3333
    """
    n = len(x)
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    # The square of the sum holds every pair twice, and each row with itself.
    return float(((unit.sum(0) ** 2).sum() - n) / (n * (n - 1)))


def principal_components(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The two directions of most variance: `[N, D]` -> points `[N, 2]`, shares `[2]`.

    Principal component analysis (Pearson, 1901): `x` less its mean, along the first
    right singular vectors. A share is the part of the variance along a direction. In
    each direction the point that is farthest from 0 is positive.

    >>> corners = np.array([[0, 0, 5], [4, 0, 5], [0, 2, 5], [4, 2, 5]])
    >>> points, shares = principal_components(corners)
    >>> points.shape, shares.round(4)
    ((4, 2), array([0.8, 0.2], dtype=float32))
    """
    u, s, _ = np.linalg.svd(x - x.mean(0), full_matrices=False)
    points = np.zeros((len(x), 2), np.float32)
    shares = np.zeros(2, np.float32)
    known = min(2, len(s))
    points[:, :known] = (u * s)[:, :known]
    farthest = points[np.abs(points).argmax(0), [0, 1]]
    variance = s**2
    shares[:known] = (variance / max(variance.sum(), np.finfo(s.dtype).tiny))[:known]
    return points * np.where(farthest < 0, -1, 1).astype(np.float32), shares


def check_shape(weights: np.ndarray) -> None:
    """Raises ValueError for a shape other than `[layers, H, L, M]`."""
    if weights.ndim != 4:
        raise ValueError(
            f"weights have the shape {list(weights.shape)}; give [layers, H, L, M]"
        )


def check_square(weights: np.ndarray) -> None:
    """Raises ValueError for a shape other than `[layers, H, L, L]`."""
    if weights.ndim != 4 or weights.shape[-1] != weights.shape[-2]:
        raise ValueError(
            f"weights have the shape {list(weights.shape)}; give [layers, H, L, L]"
        )
