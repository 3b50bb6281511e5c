"""Laws of permutation language modelling: predicted tokens and attention masks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.objectives.masking import Vocabulary
from bert_jax.objectives.permutation import (
    Permutation,
    choose_spans,
    perm_mask,
    permute_tokens,
)

PAD, CLS, SEP, MASK, V = 0, 2, 3, 4, 40
CONTINUES = np.arange(V) >= 30
VOCABULARY = Vocabulary(V, MASK, (PAD, CLS, SEP), CONTINUES)
KEY = jax.random.key(7)


def rows(n=64, length=37, seed=0):
    """Rows of words [SEP] words [SEP] [CLS], of several lengths, padded."""
    draw = np.random.default_rng(seed)
    ids = draw.integers(5, V, (n, length))
    lengths = draw.integers(8, length + 1, n)
    ids[np.arange(n), lengths // 2] = SEP
    ids[np.arange(n), lengths - 2] = SEP
    ids[np.arange(n), lengths - 1] = CLS
    ids[np.arange(length) >= lengths[:, None]] = PAD
    return ids, (ids != PAD).astype(np.int32), lengths


def permuted(ids, mask, permutation=None, key=KEY, examples=None):
    examples = np.arange(len(ids)) if examples is None else examples
    permutation = permutation or Permutation()
    f = jax.jit(lambda k, e, i, m: permute_tokens(k, e, i, m, permutation, VOCABULARY))
    return {k: np.asarray(v) for k, v in f(key, examples, ids, mask).items()}


def test_the_mask_of_a_row_as_zeros_and_ones():
    # the  cat  sat  [SEP]  on  it  [SEP]  [CLS]; "cat", "sat" and "it" are predicted,
    # in the order it, [SEP], sat, [CLS], cat, [SEP].
    order = jnp.array([3, 6, 4, 2, 0, 1, 7, 5])
    predicted = jnp.array([0, 1, 1, 0, 0, 1, 0, 0], bool)
    functional = jnp.array([0, 0, 0, 1, 0, 0, 1, 1], bool)
    expected = [
        # the cat sat SEP on  it  SEP CLS
        [0, 1, 1, 1, 0, 1, 1, 1],  # the: of the context, sees the context
        [0, 1, 0, 0, 0, 0, 1, 0],  # cat: all but itself and what comes later
        [0, 1, 1, 0, 0, 0, 1, 1],  # sat
        [0, 1, 1, 0, 0, 0, 1, 1],  # [SEP]: sees itself
        [0, 1, 1, 1, 0, 1, 1, 1],  # on: of the context
        [0, 1, 1, 1, 0, 1, 1, 1],  # it: the first in the order, sees the context
        [0, 0, 0, 0, 0, 0, 0, 0],  # [SEP]: the last in the order, sees all
        [0, 1, 0, 0, 0, 0, 1, 0],  # [CLS]
    ]
    mask = perm_mask(order, predicted, functional).astype(int)
    np.testing.assert_array_equal(mask, expected)


def seen_by_the_rule(order, predicted, functional, i, j):
    """Position i sees position j, by the rule of the paper in plain Python."""
    if not (predicted[j] or functional[j]):
        return True
    if i == j:
        return bool(functional[i])
    return bool((predicted[i] or functional[i]) and order[j] < order[i])


def test_masks_of_random_rows_follow_the_rule():
    draw = np.random.default_rng(0)
    for _ in range(5):
        order, kinds = draw.permutation(9), draw.integers(0, 3, 9)
        row = order, kinds == 1, kinds == 2
        mask = np.asarray(perm_mask(*map(jnp.asarray, row)))
        for i in range(9):
            for j in range(9):
                assert mask[i, j] != seen_by_the_rule(*row, i, j)


@pytest.mark.parametrize("one_in, ngram", [(6, 5), (3, 1), (2, 9)])
def test_each_row_predicts_one_in_k_tokens_and_no_special_ones(one_in, ngram):
    ids, mask, lengths = rows(300)
    out = permuted(ids, mask, Permutation(one_in, ngram))
    expected = np.maximum(lengths // one_in, 1)
    words = (ids > SEP).sum(1)
    np.testing.assert_array_equal(out["weights"].sum(1), np.minimum(expected, words))
    assert out["positions"].shape == (300, 37 // one_in)
    assert not np.isin(out["labels"][out["weights"] > 0], [PAD, CLS, SEP]).any()
    for row, positions in enumerate(out["positions"]):
        predicted = positions[out["weights"][row] > 0]
        assert len(set(predicted)) == len(predicted)
        np.testing.assert_array_equal(ids[row, positions], out["labels"][row])


def test_an_empty_row_predicts_nothing():
    ids = np.zeros((1, 9), np.int32)
    assert permuted(ids, ids)["weights"].sum() == 0


def test_predicted_tokens_are_hidden_from_the_context_and_from_themselves():
    ids, mask, _ = rows(50)
    out = permuted(ids, mask)
    for row, hidden in enumerate(out["perm_mask"]):
        predicted = np.zeros(len(hidden), bool)
        predicted[out["positions"][row][out["weights"][row] > 0]] = True
        special = np.isin(ids[row], [CLS, SEP])
        context = ~predicted & ~special & (mask[row] > 0)
        assert hidden[np.ix_(context, predicted)].all()
        assert hidden[predicted, predicted].all()
        assert not hidden[:, context].any()
        # Two that are ordered never see each other.
        ordered = predicted | special
        both = hidden[np.ix_(ordered, ordered)]
        assert (both | both.T | np.eye(len(both), dtype=bool)).all()


def test_all_orders_are_equally_likely():
    ids = np.tile([[5, 6, 7, 8, 9, 10, 11, SEP, CLS]], (6000, 1))
    out = permuted(ids, np.ones_like(ids), Permutation(3, 1))
    first = out["perm_mask"][:, [7, 8]].sum(2).argmax(1)  # who sees less
    assert abs(first.mean() - 0.5) < 4 * 0.5 / 6000**0.5


def sizes_of(chosen):
    """Lengths of the runs of True in rows `[N, L]`."""
    edges = np.diff(np.pad(chosen, ((0, 0), (1, 1))).astype(int), axis=1)
    return np.nonzero(edges == -1)[1] - np.nonzero(edges == 1)[1]


def spans(n, length, ids=None, count=1000):
    starts = np.ones(length, bool) if ids is None else ~CONTINUES[ids]
    draw = jax.vmap(
        lambda key: choose_spans(
            key, starts, jnp.ones(length, bool), count, length, Permutation()
        )
    )
    return np.asarray(jax.jit(draw)(jax.random.split(KEY, n)))


def test_spans_of_n_tokens_have_frequency_one_over_n():
    # The first of a row, for later ones may touch each other.
    firsts = []
    for row in spans(4000, 97):
        start = row.argmax()
        firsts.append(sizes_of(row[None, start:])[0])
    shares = np.bincount(firsts, minlength=11)[1:6] / len(firsts)
    expected = 1 / np.arange(1, 6) / sum(1 / np.arange(1, 6))
    # Two that touch are longer: in a context of 6 n tokens, one in 6 n ends it.
    assert (abs(shares - expected) < 0.06).all()
    assert (np.diff(shares) < 0).all()


def test_spans_have_k_times_as_much_context_at_any_position():
    chosen = spans(4000, 240)[:, 30:210]
    assert abs(chosen.mean() - 1 / 7) < 0.005
    assert (abs(chosen.mean(0) - 1 / 7) < 0.04).all()


def test_spans_begin_with_words_and_never_exceed_the_count():
    ids = np.random.default_rng(0).integers(5, V, 60)
    chosen = spans(500, 60, ids, count=7)
    starts = np.diff(np.pad(chosen, ((0, 0), (1, 0))).astype(int), axis=1) == 1
    assert not CONTINUES[ids[np.nonzero(starts)[1]]].any()
    assert chosen.sum(1).max() == 7


def test_no_span_crosses_a_token_that_cannot_be_predicted():
    candidates = jnp.array([True] * 4 + [False] + [True] * 20)
    draw = jax.vmap(
        lambda key: choose_spans(
            key, candidates, candidates, 20, 8, Permutation(ngram=12)
        )
    )
    chosen = jax.jit(draw)(jax.random.split(KEY, 40))
    assert not chosen[:, 4].any() and chosen[:, [3, 5]].any(0).all()


def test_permutations_depend_on_the_example_and_the_key_alone():
    ids, mask, _ = rows(8)
    whole = permuted(ids, mask)
    part = permuted(ids[3:5], mask[3:5], examples=np.array([3, 4]))
    for name in whole:
        np.testing.assert_array_equal(whole[name][3:5], part[name])
    other = permuted(ids, mask, key=jax.random.key(8))
    assert (other["perm_mask"] != whole["perm_mask"]).any()
    again = permuted(ids, mask, examples=np.arange(8) + 8)
    assert (again["positions"] != whole["positions"]).any()


def test_a_prediction_that_would_see_nothing_has_no_weight():
    # Two sequences, of which the first is a token alone.
    ids = np.tile([5, 6, 7, 8, 9, 10, 11], (40, 1))
    mask = np.tile([1, 2, 2, 2, 2, 2, 2], (40, 1))
    out = permuted(ids, mask, Permutation(2, 1))
    alone = out["positions"] == 0
    assert alone.any() and not out["weights"][alone].any()
    assert out["weights"][~alone].all()


@pytest.mark.parametrize(
    "change, message",
    [
        ({"one_in": 1}, "permutation.one_in=1 leaves no token to see"),
        ({"ngram": 0}, "permutation.ngram=0; it must be at least 1"),
        ({"max_predictions": 0}, "permutation.max_predictions=0; it must be at least"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(change, message):
    with pytest.raises(ValueError, match=message):
        Permutation(**change).validate()
