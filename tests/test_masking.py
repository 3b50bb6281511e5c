"""Laws of masking: BERT's arithmetic, its shares, and where randomness comes from."""

import jax
import numpy as np
import pytest

from bert_jax.masking import Masking, Vocabulary, mask_tokens

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


def test_an_empty_row_predicts_nothing():
    ids = np.zeros((1, 9), np.int32)
    assert masked(ids, ids, Masking())["weights"].sum() == 0


def test_positions_are_distinct_and_labels_are_what_stood_there():
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
    """Word number of each token (-1 for special ones), the slow way."""
    words, current = [], -1
    for previous, token in zip([PAD, *ids[:-1]], ids, strict=True):
        special = token in (PAD, CLS, SEP)
        if not special and (not CONTINUES[token] or previous in (PAD, CLS, SEP)):
            current += 1
        words.append(-1 if special else current)
    return np.array(words)


def test_whole_words_are_hidden_whole_and_never_cut():
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
    ],
)
def test_a_wrong_masking_is_refused(masking, message):
    with pytest.raises(ValueError, match=message):
        masking.validate()
