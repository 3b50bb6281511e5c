import numpy as np
import pytest

from bert_jax.data.sequences import efficiency, pack


def lengths_of(seed, count=1001, most=97):
    return np.random.default_rng(seed).integers(1, most + 1, count)


@pytest.mark.parametrize("per_row", [1, 2, 5, 1000])
def test_a_row_holds_no_more_than_it_may(per_row):
    lengths = lengths_of(0)
    rows = pack(lengths, 97, per_row)
    assert sorted(set(rows)) == list(range(rows.max() + 1))
    assert np.bincount(rows, lengths).max() <= 97
    assert np.bincount(rows).max() <= per_row


def test_one_sequence_a_row_is_no_packing():
    assert sorted(pack(lengths_of(1), 97, 1)) == list(range(1001))


def test_no_two_rows_could_be_one():
    lengths = lengths_of(2, count=300)
    filled = np.sort(np.bincount(pack(lengths, 97, 1000), lengths))
    assert filled[0] + filled[1] > 97


def test_a_sequence_goes_where_it_leaves_the_least_room():
    rows = pack(np.array([6, 7, 3]), 10, 8)
    assert rows[2] == rows[1] != rows[0]


def test_packing_wastes_less_than_two_percent_of_mixed_lengths():
    lengths = lengths_of(3, count=5000)
    rows = pack(lengths, 97, 8)
    assert efficiency(lengths, rows, 97) > 0.98
    assert efficiency(lengths, rows, 97) == lengths.sum() / (97 * (rows.max() + 1))


def test_the_lengths_alone_decide():
    lengths = lengths_of(4)
    assert (pack(lengths, 97, 8) == pack(lengths.copy(), 97, 8)).all()


def test_a_sequence_beyond_the_row_is_refused():
    with pytest.raises(ValueError, match="a sequence of 12 exceeds rows of 11"):
        pack(np.array([3, 12]), 11, 8)


def test_nothing_packs_into_no_row():
    assert pack(np.zeros(0, int), 11, 8).shape == (0,)
