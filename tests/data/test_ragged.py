"""Laws of rows of unequal lengths, and of the batches made of them."""

import itertools

import numpy as np
import pytest

from bert_jax.data import pipeline
from bert_jax.data.length_buckets import TRAINING_LENGTHS, WINDOW
from bert_jax.data.ragged import RaggedRows


def ragged(count=101, longest=40, seed=0):
    lengths = np.random.default_rng(seed).integers(2, longest + 1, count)
    ids = [np.full(n, i + 1) for i, n in enumerate(lengths)]
    types = [np.arange(n) % 2 for n in lengths]
    return RaggedRows(
        {"input_ids": ids, "token_type_ids": types},
        fill={"input_ids": 7, "token_type_ids": 0},
        columns={"labels": np.arange(count, dtype=np.int32)},
        max_length=longest,
    )


def taken(rows, count=None, **settings):
    return list(itertools.islice(pipeline.batches(rows, **settings), count))


def test_a_row_is_its_sequence_and_then_padding():
    rows = ragged()
    batch = rows.gather(np.array([5, 0, 5]))
    for b, i in enumerate((5, 0, 5)):
        n = rows.lengths[i]
        assert (batch["input_ids"][b, :n] == i + 1).all()
        assert (batch["input_ids"][b, n:] == 7).all()
        assert batch["attention_mask"][b].tolist() == [1] * n + [0] * (
            batch["input_ids"].shape[1] - n
        )
    assert batch["labels"].tolist() == [5, 0, 5]
    assert batch["input_ids"].shape[1] in (*TRAINING_LENGTHS, rows.max_length)


def test_batches_of_unequal_rows_visit_each_row_once_an_epoch_up_to_the_stop():
    rows = ragged(count=21)
    batches = taken(rows, batch_size=6, seed=3, stop=2 * 21)
    labels = np.concatenate([batch["labels"] for batch in batches])
    assert (np.bincount(labels, minlength=21) == 2).all()


def test_a_batch_of_unequal_rows_is_a_function_of_the_seed_and_the_examples_seen():
    rows = ragged()
    whole = taken(rows, batch_size=3, seed=1, stop=150)
    later = taken(rows, batch_size=3, seed=1, start=57, stop=150)
    assert len(whole) == 50 and len(later) == 50 - 19
    for a, b in zip(whole[19:], later, strict=True):
        assert a.keys() == b.keys()
        assert all((a[name] == b[name]).all() for name in a)
    other = taken(rows, batch_size=3, seed=2, stop=150)
    assert any(
        (a["labels"] != b["labels"]).any() for a, b in zip(whole, other, strict=True)
    )


def test_rows_of_like_length_share_a_batch():
    rows = ragged(count=WINDOW * 4)
    batches = taken(rows, WINDOW, batch_size=4, seed=0)
    spread = [np.ptp(rows.lengths[batch["labels"]]) for batch in batches]
    assert np.mean(spread) < 4  # of 38 between the shortest and the longest
    # The order of batches does not depend on their lengths.
    means = [rows.lengths[batch["labels"]].mean() for batch in batches]
    assert abs(np.corrcoef(means, np.arange(WINDOW))[0, 1]) < 0.6


def test_every_host_pads_to_the_length_of_the_whole_batch():
    rows = ragged()
    whole = taken(rows, 9, batch_size=6, seed=0)
    for share in ([0, 1, 2], [3, 4, 5], [1, 4]):
        parts = taken(rows, 9, batch_size=6, seed=0, share=share)
        for batch, part in zip(whole, parts, strict=True):
            assert all((part[name] == batch[name][share]).all() for name in batch)


def test_evaluation_visits_every_unequal_row_once_with_its_number():
    rows = ragged(count=11)
    batches = list(pipeline.eval_batches(rows, batch_size=4))
    valid = np.concatenate([batch["valid"] for batch in batches])
    example = np.concatenate([batch["example"] for batch in batches])
    labels = np.concatenate([batch["labels"] for batch in batches])
    assert valid.sum() == 11 and sorted(example[valid]) == list(range(11))
    assert (labels == example).all()
    assert len({batch["input_ids"].shape for batch in batches}) > 1


def test_a_start_between_batches_of_unequal_rows_is_refused():
    with pytest.raises(ValueError, match="start=4 is not a multiple of batch_size=3"):
        taken(ragged(), batch_size=3, seed=0, start=4, stop=90)
