"""Scores equal those of scikit-learn and scipy."""

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics as sklearn

from bert_jax import metrics


def draw(seed, classes):
    """Labels and predictions that agree more often than chance."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, classes, 113)
    guesses = random.integers(0, classes, 113)
    return labels, np.where(random.random(113) < 0.4, labels, guesses)


@pytest.mark.parametrize("seed", range(5))
def test_classes_score_as_in_scikit_learn(seed):
    both = draw(seed, classes=2)
    assert metrics.accuracy(*both) == pytest.approx(sklearn.accuracy_score(*both))
    assert metrics.f1(*both) == pytest.approx(sklearn.f1_score(*both))


@pytest.mark.parametrize("classes", [2, 3, 7])
def test_matthews_correlation_is_that_of_scikit_learn(classes):
    both = draw(classes, classes)
    assert metrics.matthews(*both) == pytest.approx(sklearn.matthews_corrcoef(*both))


@pytest.mark.parametrize(
    "ours, theirs",
    [(metrics.pearson, stats.pearsonr), (metrics.spearman, stats.spearmanr)],
)
def test_correlations_are_those_of_scipy_with_ties_too(ours, theirs):
    random = np.random.default_rng(3)
    labels = random.integers(0, 26, 97) / 5
    predictions = np.round(labels + random.normal(size=97), 1).astype(np.float32)
    expected = theirs(labels, predictions).statistic
    assert ours(labels, predictions) == pytest.approx(expected)


def test_a_constant_correlates_with_nothing():
    constant, varied = np.zeros(5), np.arange(5) % 2
    assert metrics.matthews(constant, varied) == 0
    assert np.isnan(metrics.pearson(varied, constant))
    assert np.isnan(metrics.spearman(constant, varied))
    # The mean of these is not quite the value.
    assert np.isnan(metrics.pearson([1, 2, 4], [0.1] * 3))


def test_f1_is_0_if_class_1_is_neither_labelled_nor_predicted():
    assert metrics.f1(np.zeros(4), np.zeros(4)) == 0
