"""Scores of predictions, on NumPy arrays `[N]`."""

import numpy as np


def accuracy(labels: np.ndarray, predictions: np.ndarray) -> float:
    """The share of rows that are right.

    >>> accuracy([0, 1, 1, 2], [0, 1, 2, 2])
    0.75
    """
    return float(np.mean(np.asarray(labels) == np.asarray(predictions)))


def f1(labels: np.ndarray, predictions: np.ndarray) -> float:
    """F1 of class 1; 0 where there is none, as scikit-learn has it.

    >>> f1([0, 1, 1, 1], [0, 1, 0, 0])
    0.5
    """
    real, said = np.asarray(labels) == 1, np.asarray(predictions) == 1
    found = real.sum() + said.sum()
    return float(2 * (real & said).sum() / found) if found else 0.0


def matthews(labels: np.ndarray, predictions: np.ndarray) -> float:
    """Matthews' correlation of two or more classes; 0 where one side is constant.

    Matthews, 1975; with more classes R_K of Gorodkin, 2004.

    >>> round(matthews([0, 0, 1, 1], [0, 0, 1, 0]), 4)
    0.5774
    """
    classes, both = np.unique([labels, predictions], return_inverse=True)
    one_hot = np.eye(len(classes))[both.reshape(2, -1)]
    spread = one_hot - one_hot.mean(1, keepdims=True)
    between = (spread[0] * spread[1]).sum()
    scale = np.sqrt((spread[0] ** 2).sum() * (spread[1] ** 2).sum())
    return float(between / scale) if scale else 0.0


def pearson(labels: np.ndarray, predictions: np.ndarray) -> float:
    """Pearson's correlation; NaN where one side is constant.

    >>> pearson([1, 2, 3], [2, 4, 6]), pearson([1, 2, 3], [5, 5, 5])
    (1.0, nan)
    """
    x, y = np.asarray(labels, np.float64), np.asarray(predictions, np.float64)
    # Asked of the values: rounding leaves a constant a little beside its mean.
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return float("nan")
    x, y = x - x.mean(), y - y.mean()
    return float(x @ y / np.sqrt((x @ x) * (y @ y)))


def spearman(labels: np.ndarray, predictions: np.ndarray) -> float:
    """Spearman's correlation: Pearson's of the ranks; equals share their mean rank.

    >>> round(spearman([1, 2, 3, 4], [1, 10, 10, 1000]), 4)
    0.9487
    """
    return pearson(_ranks(labels), _ranks(predictions))


def _ranks(values):
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[inverse]
