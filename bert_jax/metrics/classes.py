"""Scores of classes and of numbers."""

import numpy as np
from numpy.typing import ArrayLike


def accuracy(labels: ArrayLike, predictions: ArrayLike) -> float:
    """The share of rows that are right.

    >>> accuracy([0, 1, 1, 2], [0, 1, 2, 2])
    0.75
    """
    return float(np.mean(np.asarray(labels) == np.asarray(predictions)))


def f1(labels: ArrayLike, predictions: ArrayLike) -> float:
    """F1 of class 1; 0 if neither side has it, as in scikit-learn.

    >>> f1([0, 1, 1, 1], [0, 1, 0, 0])
    0.5
    """
    actual, predicted = np.asarray(labels) == 1, np.asarray(predictions) == 1
    total = actual.sum() + predicted.sum()
    return float(2 * (actual & predicted).sum() / total) if total else 0.0


def matthews(labels: ArrayLike, predictions: ArrayLike) -> float:
    """Matthews' correlation of two or more classes; 0 if one side is constant.

    Matthews, 1975; with more classes R_K of Gorodkin, 2004.

    >>> round(matthews([0, 0, 1, 1], [0, 0, 1, 0]), 4)
    0.5774
    """
    both = np.stack([np.asarray(labels), np.asarray(predictions)])
    classes, indices = np.unique(both, return_inverse=True)
    one_hot = np.eye(len(classes))[indices.reshape(2, -1)]
    centred = one_hot - one_hot.mean(1, keepdims=True)
    covariance = (centred[0] * centred[1]).sum()
    scale = np.sqrt((centred[0] ** 2).sum() * (centred[1] ** 2).sum())
    return float(covariance / scale) if scale else 0.0


# Scores that a constant has 0 of, and that chance alone moves away from 0.
CORRELATIONS = ("matthews", "pearson", "spearman")
# Beginnings of scores whose baselines have a name of their own.
BASELINES = {"mlm": "unigram", "nsp": "nsp_constant", "rtd": "rtd_constant"}


def baseline_name(score: str) -> str:
    """The name under which a report has the score of the best constant answer.

    >>> baseline_name("accuracy"), baseline_name("mlm_loss")
    ('constant_accuracy', 'unigram_loss')
    """
    start, _, rest = score.partition("_")
    if start in BASELINES:
        return f"{BASELINES[start]}_{rest}"
    return f"constant_{score}"


def is_no_better(score: str, value: float, baseline: float, rows: int) -> bool:
    """True if a score is no better than that of a constant answer; NaN never is.

    Losses are better if they are lower. A correlation over N rows has to exceed 2 /
    sqrt(N), which is two standard errors of none at all.

    >>> is_no_better("accuracy", 0.5, 0.5, 100), is_no_better("mlm_loss", 2.0, 4.3, 9)
    (True, False)
    """
    if score.endswith("loss"):
        return not value < baseline
    chance = 2 / np.sqrt(max(rows, 1)) if score in CORRELATIONS else 0.0
    return not value > baseline + chance


def pearson(labels: ArrayLike, predictions: ArrayLike) -> float:
    """Pearson's correlation; NaN if one side is constant.

    >>> pearson([1, 2, 3], [2, 4, 6]), pearson([1, 2, 3], [5, 5, 5])
    (1.0, nan)
    """
    x, y = np.asarray(labels, np.float64), np.asarray(predictions, np.float64)
    # Compares values: after rounding, a constant can differ a little from its mean.
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return float("nan")
    x, y = x - x.mean(), y - y.mean()
    return float(x @ y / np.sqrt((x @ x) * (y @ y)))


def spearman(labels: ArrayLike, predictions: ArrayLike) -> float:
    """Spearman's correlation: Pearson's of the ranks; equal values share a mean rank.

    >>> round(spearman([1, 2, 3, 4], [1, 10, 10, 1000]), 4)
    0.9487
    """
    return pearson(_ranks(labels), _ranks(predictions))


def _ranks(values: ArrayLike) -> np.ndarray:
    _, inverse, counts = np.unique(
        np.asarray(values), return_inverse=True, return_counts=True
    )
    return (np.cumsum(counts) - (counts - 1) / 2)[inverse]
