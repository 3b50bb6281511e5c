"""Laws of batches in which no text is twice."""

import itertools

import numpy as np
import pytest

from bert_jax.data import pipeline
from bert_jax.data.distinct_texts import NONE, separated
from bert_jax.data.ragged import ChoiceRows, RaggedRows


def groups(texts, count=120):
    """Rows of two texts, of lengths that differ."""
    lengths = np.random.default_rng(1).integers(2, 9, count * 2)
    ids = [np.full(n, 5) for n in lengths]
    sequences = RaggedRows({"input_ids": ids}, {"input_ids": 0}, {}, max_length=16)
    return ChoiceRows(sequences, 2, {"id": np.arange(count)}, texts)


def taken(rows, count=None, **settings):
    return list(itertools.islice(pipeline.batches(rows, **settings), count))


def repeated(count=120, different=30, seed=0):
    """The numbers of texts: each anchor is in about four rows."""
    draw = np.random.default_rng(seed)
    anchors = draw.integers(0, different, count)
    return np.stack([anchors, different + np.arange(count)], axis=1)


def test_no_batch_has_a_text_twice_and_an_epoch_visits_each_row_once():
    texts = repeated()
    batches = taken(groups(texts), batch_size=12, seed=3, stop=240)
    assert len(batches) == 20
    for batch in batches:
        numbers = texts[batch["id"]]
        assert batch["valid"].all() and len(np.unique(numbers)) == numbers.size
    seen = np.concatenate([batch["id"] for batch in batches])
    assert (np.bincount(seen, minlength=120) == 2).all()
    plain = taken(groups(None), batch_size=12, seed=3, stop=240)
    assert "valid" not in plain[0]
    assert any(len(np.unique(texts[b["id"], 0])) < 12 for b in plain)


def test_a_batch_of_distinct_texts_is_a_function_of_the_seed_and_the_examples_seen():
    rows = groups(repeated())
    whole = taken(rows, 15, batch_size=12, seed=1)
    later = taken(rows, 8, batch_size=12, seed=1, start=7 * 12)
    for a, b in zip(whole[7:], later, strict=True):
        assert all((a[name] == b[name]).all() for name in a)
    halves = [taken(rows, 15, batch_size=12, seed=1, share=s) for s in ([0, 5], [7])]
    for one, two, batch in zip(*halves, whole, strict=True):
        assert (one["id"] == batch["id"][[0, 5]]).all()
        assert (two["valid"] == batch["valid"][[7]]).all()


@pytest.mark.parametrize("different", [3, 16, 100])
def test_rows_that_cannot_be_separated_are_marked_and_none_is_lost(different):
    texts = repeated(64, different)
    places = np.random.default_rng(2).permutation(64).reshape(8, 8)
    batches, alone = separated(places, texts)
    assert sorted(batches.ravel()) == list(range(64))
    for rows, single in zip(batches, alone, strict=True):
        numbers = texts[rows[single]]
        assert len(np.unique(numbers)) == numbers.size
    most = np.bincount(texts[:, 0]).clip(max=8).sum()
    assert alone.sum() <= most and (alone.all() or most < 64)


def test_missing_texts_are_no_copies_of_each_other():
    texts = np.full((8, 3), NONE)
    places = np.arange(8).reshape(2, 4)
    batches, alone = separated(places, texts)
    assert (batches == places).all() and alone.all()
