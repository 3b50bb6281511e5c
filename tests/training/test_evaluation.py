"""Laws of the predictions that evaluation collects for a task's score."""

import numpy as np
import pytest

from bert_jax.training.evaluation import score_of
from bert_jax.training.program import as_words, in_order


def numbers(*rows):
    """Row numbers as a batch on the devices has them."""
    return as_words(np.array(rows, np.uint64))


def test_predictions_are_in_row_order_without_filler_rows():
    rows = [
        (numbers(4, 2**32), np.array([True, True]), {"p": np.array([40.0, 50.0])}),
        (numbers(3, 1), np.array([True, True]), {"p": np.array([30.0, 10.0])}),
        (numbers(2, 4), np.array([True, False]), {"p": np.array([20.0, -1.0])}),
    ]
    assert in_order(rows)["p"].tolist() == [10.0, 20.0, 30.0, 40.0, 50.0]


def test_predictions_of_unequal_lengths_are_padded_with_zeros():
    rows = [
        (numbers(1), np.array([True]), {"p": np.ones((1, 2, 3))}),
        (numbers(0), np.array([True]), {"p": np.ones((1, 5, 3))}),
    ]
    predictions = in_order(rows)["p"]
    assert predictions.shape == (2, 5, 3)
    assert (
        predictions.sum(axis=(1, 2)).tolist() == [15, 6]
        and (predictions[1, 2:] == 0).all()
    )


@pytest.mark.parametrize("best, sign", [("loss", -1), ("mlm_loss", -1), ("f1", 1)])
def test_lower_losses_and_higher_scores_are_better(best, sign):
    assert score_of({best: 0.25}, best) == sign * 0.25
