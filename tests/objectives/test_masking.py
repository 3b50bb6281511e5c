"""Laws of masking: BERT's counts and shares, and the source of randomness."""

import jax
import numpy as np
import pytest

from bert_jax.objectives.masking import (
    Masking,
    Vocabulary,
    mask_tokens,
    ngram_sizes,
    units_ahead,
)
from bert_jax.training.program import as_words

PAD, CLS, SEP, MASK, V = 0, 2, 3, 4, 40
CONTINUES = np.arange(V) >= 30
VOCABULARY = Vocabulary(V, MASK, (PAD, CLS, SEP), CONTINUES)
KEY = jax.random.key(7)


def rows(n=64, length=37, seed=0):
    """Rows of [CLS] words [SEP] words [SEP], of several lengths, padded."""
    draw = np.random.default_rng(seed)
    ids = draw.integers(5, V, (n, length))
    lengths = draw.integers(8, length + 1, n)
    ids[:, 0] = CLS
    ids[np.arange(n), lengths // 2] = SEP
    ids[np.arange(n), lengths - 1] = SEP
    ids[np.arange(length) >= lengths[:, None]] = PAD
    return ids, (ids != PAD).astype(np.int32), lengths


def masked(ids, mask, masking, key=KEY, examples=None):
    examples = np.arange(len(ids)) if examples is None else examples
    f = jax.jit(lambda k, e, i, m: mask_tokens(k, e, i, m, masking, VOCABULARY))
    return {k: np.asarray(v) for k, v in f(key, examples, ids, mask).items()}


def test_special_and_padding_tokens_are_never_chosen():
    ids, mask, _ = rows(400)
    out = masked(ids, mask, Masking(rate=0.9))
    chosen = out["labels"][out["weights"] > 0]
    assert not np.isin(chosen, [PAD, CLS, SEP]).any()
    special = np.isin(ids, [PAD, CLS, SEP])
    np.testing.assert_array_equal(out["input_ids"][special], ids[special])


@pytest.mark.parametrize("rate", [0.15, 0.3, 0.4])
def test_each_row_predicts_as_many_tokens_as_in_googles_code(rate):
    ids, mask, lengths = rows(200)
    out = masked(ids, mask, Masking(rate=rate, max_predictions=9))
    expected = [min(9, max(1, round(n * rate))) for n in lengths.tolist()]
    assert out["positions"].shape == (200, 9)
    np.testing.assert_array_equal(out["weights"].sum(1), expected)


def test_numbers_of_64_bits_repeat_no_mask_and_keep_those_below_32_bits():
    ids, mask, _ = rows(1)
    ids, mask = np.repeat(ids, 5, 0), np.repeat(mask, 5, 0)
    numbers = np.array([7, 7 + 2**32, 7 + 2**33, 7 + 3 * 2**32, 8], np.uint64)
    positions = masked(ids, mask, Masking(), examples=as_words(numbers))["positions"]
    assert len(np.unique(positions, axis=0)) == 5
    short = masked(ids, mask, Masking(), examples=np.full(5, 7, np.uint32))
    np.testing.assert_array_equal(positions[0], short["positions"][0])


def test_an_empty_row_predicts_nothing():
    ids = np.zeros((1, 9), np.int32)
    assert masked(ids, ids, Masking())["weights"].sum() == 0


def test_positions_are_distinct_and_labels_are_the_original_tokens():
    ids, mask, _ = rows()
    out = masked(ids, mask, Masking())
    for row, positions, weights in zip(
        range(len(ids)), out["positions"], out["weights"] > 0, strict=True
    ):
        assert len(set(positions[weights])) == weights.sum()
        np.testing.assert_array_equal(ids[row, positions], out["labels"][row])
        untouched = np.setdiff1d(np.arange(ids.shape[1]), positions[weights])
        np.testing.assert_array_equal(
            out["input_ids"][row, untouched], ids[row, untouched]
        )


@pytest.mark.parametrize("whole_words", [False, True])
def test_chosen_tokens_follow_80_10_10(whole_words):
    ids, mask, _ = rows(6000)
    out = masked(ids, mask, Masking(whole_words=whole_words))
    rows_, columns = np.nonzero(out["weights"])
    labels = out["labels"][rows_, columns]
    hidden = out["input_ids"][rows_, out["positions"][rows_, columns]]
    n = len(labels)
    # A random token equals the label or [MASK] once in V draws each.
    expected = {"mask": 0.8 + 0.1 / V, "same": 0.1 + 0.1 / V}
    observed = {"mask": (hidden == MASK).mean(), "same": (hidden == labels).mean()}
    for name, share in expected.items():
        assert abs(observed[name] - share) < 4 * (share * (1 - share) / n) ** 0.5
    # Random tokens come from the whole vocabulary, special tokens included.
    assert set(hidden) == set(range(V))


def test_every_candidate_is_chosen_equally_often():
    ids, mask, _ = rows(1)
    out = masked(
        np.repeat(ids, 8000, 0), np.repeat(mask, 8000, 0), Masking(max_predictions=3)
    )
    candidates = np.nonzero((ids[0] > SEP) | (ids[0] == 1))[0]
    used = np.bincount(out["positions"][out["weights"] > 0], minlength=ids.shape[1])
    share = used.sum() / len(candidates)
    assert used[np.setdiff1d(np.arange(ids.shape[1]), candidates)].sum() == 0
    assert (abs(used[candidates] - share) < 5 * share**0.5).all()


def words_of(ids):
    """The word number of each token (-1 for special tokens), by a plain loop."""
    words, current = [], -1
    for previous, token in zip([PAD, *ids[:-1]], ids, strict=True):
        special = token in (PAD, CLS, SEP)
        if not special and (not CONTINUES[token] or previous in (PAD, CLS, SEP)):
            current += 1
        words.append(-1 if special else current)
    return np.array(words)


def test_whole_words_are_never_hidden_in_part():
    ids, mask, lengths = rows(300)
    out = masked(ids, mask, Masking(whole_words=True))
    for row, n in enumerate(lengths.tolist()):
        words = words_of(ids[row].tolist())
        chosen = set(out["positions"][row][out["weights"][row] > 0].tolist())
        taken = {words[i] for i in chosen}
        assert chosen == {i for i, w in enumerate(words) if w in taken and w >= 0}
        limit = max(1, round(n * 0.15))
        assert len(chosen) <= limit
        # What was left out would have overflowed.
        sizes = np.bincount(words[words >= 0])
        left = [s for w, s in enumerate(sizes) if w not in taken]
        assert not left or len(chosen) + min(left) > limit


def packed(n, length=64, seed=1):
    """Rows of three sequences of different lengths, as the packer lays them out."""
    draw = np.random.default_rng(seed)
    ids = draw.integers(5, V, (n, length))
    mask = np.repeat([1, 2, 3, 0], [20, 17, 22, length - 59])[None].repeat(n, 0)
    ids[:, [0, 20, 37]], ids[:, [9, 19, 27, 36, 58]] = CLS, SEP
    ids[:, 59:] = PAD
    return ids, mask.astype(np.int32)


def hidden_by_google(ids, count, ngram, draw):
    """The words that Google's algorithm hides in one row.

    It is that of create_pretraining_data.py of google-research/albert, but no n-gram
    reaches over a special token.
    """
    words = words_of(ids)
    tokens = [np.flatnonzero(words == w) for w in range(words.max() + 1)]
    apart = [int((words[: t[0]] < 0).sum()) for t in tokens]
    p, hidden, total = 1 / np.arange(1, ngram + 1), set(), 0
    for start in draw.permutation(len(tokens)):
        near = [w for w in range(start, len(tokens)) if apart[w] == apart[start]]
        near = near[:ngram]
        n = draw.choice(len(near), p=p[: len(near)] / p[: len(near)].sum()) + 1
        while n > 1 and total + sum(len(tokens[w]) for w in near[:n]) > count:
            n -= 1
        size = sum(len(tokens[w]) for w in near[:n])
        if total + size <= count and not hidden & set(near[:n]):
            hidden |= set(near[:n])
            total += size
    return hidden


def neighbours(words):
    """The number of hidden words whose next word is hidden too."""
    return len(words & {w - 1 for w in words})


def test_ngrams_of_whole_words_are_as_frequent_as_in_googles_code():
    ids, mask = packed(400)
    out = masked(ids, mask, Masking(whole_words=True, ngram=3, max_predictions=9))
    draw, ours, theirs = np.random.default_rng(0), [], []
    for row, (positions, weights) in enumerate(
        zip(out["positions"], out["weights"] > 0, strict=True)
    ):
        words, chosen = words_of(ids[row].tolist()), set(positions[weights].tolist())
        taken = {words[i] for i in chosen}
        assert chosen == {i for i, w in enumerate(words) if w in taken}
        assert -1 not in taken and len(chosen) <= 9
        ours.append((neighbours(taken), len(taken), len(chosen)))
        other = hidden_by_google(ids[row].tolist(), 9, 3, draw)
        theirs.append((neighbours(other), len(other), np.isin(words, [*other]).sum()))
    difference = np.mean(ours, 0) - np.mean(theirs, 0)
    error = np.sqrt((np.var(ours, 0) + np.var(theirs, 0)) / 400)
    assert (abs(difference) < 4 * error + 1e-9).all(), (difference, error)
    # One by one, words are rarely neighbours.
    alone = masked(ids, mask, Masking(whole_words=True, max_predictions=9))
    assert np.mean(ours, 0)[0] > 1.5 * np.mean([*apart(alone, ids)])


def apart(out, ids):
    """The number of neighbours among the hidden words of each row."""
    for row, weights in enumerate(out["weights"] > 0):
        words = words_of(ids[row].tolist())[out["positions"][row][weights]]
        yield neighbours(set(words.tolist()))


def test_ngrams_of_size_n_have_frequency_one_over_n():
    draws = jax.random.uniform(KEY, (30_000,))
    for ahead, shares in {
        5: [6 / 11, 3 / 11, 2 / 11],
        2: [2 / 3, 1 / 3, 0],
        1: [1, 0, 0],
        0: [1, 0, 0],
    }.items():
        sizes = np.asarray(ngram_sizes(draws, np.full(30_000, ahead), 3))
        frequencies = np.bincount(sizes, minlength=4)[1:] / 30_000
        np.testing.assert_allclose(frequencies, shares, atol=0.012)


def test_units_ahead_are_counted_up_to_the_next_special_token():
    ids = np.array([CLS, 7, 8, 31, 9, SEP, 33, 8, SEP, PAD])
    candidates = ~np.isin(ids, [CLS, SEP, PAD])
    starts = np.array([0, 1, 1, 0, 1, 0, 1, 1, 0, 0], bool)
    ahead = np.asarray(units_ahead(starts, candidates))
    np.testing.assert_array_equal(ahead[starts], [3, 2, 1, 2, 1])


@pytest.mark.parametrize("masking", [Masking(ngram=3, rate=0.3), Masking(ngram=2)])
def test_ngrams_of_tokens_use_every_prediction_of_a_row(masking):
    ids, mask, lengths = rows(200)
    out = masked(ids, mask, masking)
    expected = [max(1, round(n * masking.rate)) for n in lengths.tolist()]
    most = masking.predictions(ids.shape[1])
    np.testing.assert_array_equal(out["weights"].sum(1), np.minimum(expected, most))


def test_masks_depend_on_the_example_and_the_key_alone():
    ids, mask, _ = rows(8)
    whole = masked(ids, mask, Masking())
    part = masked(ids[3:5], mask[3:5], Masking(), examples=np.array([3, 4]))
    for name in whole:
        np.testing.assert_array_equal(whole[name][3:5], part[name])
    other = masked(ids, mask, Masking(), key=jax.random.key(8))
    assert (other["positions"] != whole["positions"]).any()
    again = masked(ids, mask, Masking(), examples=np.arange(8) + 8)
    assert (again["positions"] != whole["positions"]).any()


@pytest.mark.parametrize(
    "masking, message",
    [
        (Masking(rate=0.0), "masking.rate=0.0"),
        (Masking(mask_share=0.8, random_share=0.3), "are not shares of one whole"),
        (Masking(max_predictions=0), "masking.max_predictions=0"),
        (Masking(ngram=0), "masking.ngram=0"),
    ],
)
def test_a_wrong_masking_is_refused(masking, message):
    with pytest.raises(ValueError, match=message):
        masking.validate()
