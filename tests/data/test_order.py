import numpy as np
import pytest

from bert_jax.data.order import epochs_and_rows, permute


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 16, 97, 100, 1009, 65536, 65537])
def test_a_permutation_visits_every_row_once(size):
    for seed in range(3):
        assert (np.sort(permute(np.arange(size), size, seed)) == np.arange(size)).all()


def test_every_permutation_of_three_rows_occurs():
    seen = {tuple(permute(np.arange(3), 3, seed).tolist()) for seed in range(80)}
    assert len(seen) == 6


def test_an_image_depends_on_its_own_index_alone():
    whole = permute(np.arange(1009), 1009, 5)
    some = np.array([[1008, 0], [17, 17]])
    assert (permute(some, 1009, 5) == whole[some]).all()


def test_neighbours_part_and_seeds_differ():
    first, second = (permute(np.arange(10007), 10007, seed) for seed in (0, 1))
    assert abs(np.corrcoef(first, np.arange(10007))[0, 1]) < 0.05
    assert abs(np.corrcoef(first[1:], first[:-1])[0, 1]) < 0.05
    assert (first == second).mean() < 0.001


def test_sizes_beyond_32_bits_work():
    size = 5 * 2**33 + 11
    images = permute(np.array([0, 1, size - 1]), size, 0)
    assert (
        len(set(images.tolist())) == 3 and (0 <= images).all() and images.max() < size
    )
    assert images.max() > 2**32


def test_an_index_outside_is_refused():
    for index in (-1, 5):
        with pytest.raises(ValueError, match=r"outside of range\(5\)"):
            permute(np.array([index]), 5, 0)


def test_each_epoch_visits_every_row_in_an_order_of_its_own():
    epochs, rows = epochs_and_rows(np.arange(3 * 11), 11, seed=4)
    assert epochs.tolist() == [0] * 11 + [1] * 11 + [2] * 11
    orders = rows.reshape(3, 11)
    assert (np.sort(orders) == np.arange(11)).all()
    assert len({tuple(order) for order in orders.tolist()}) == 3


def test_an_example_has_the_same_row_in_any_batch():
    _, rows = epochs_and_rows(np.arange(40), 11, seed=4)
    for start in (0, 7, 30):
        batch = np.arange(start, start + 10)
        assert (epochs_and_rows(batch, 11, seed=4)[1] == rows[batch]).all()
