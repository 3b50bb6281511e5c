"""The pair rules, against laws and against a slow generator that moves tokens."""

import random
import re
from pydoc_data.topics import topics

import numpy as np
import pytest

from bert_jax.data.sequences import flatten, make_sequences, truncate


def documents(seed, count=23, most_sentences=17, most_tokens=29):
    """Sentences whose ids all differ, so that a segment names its place."""
    rng, next_id, out = random.Random(seed), 10, []
    for _ in range(count):
        out.append([])
        for _ in range(rng.randint(1, most_sentences)):
            size = rng.randint(1, most_tokens)
            out[-1].append(list(range(next_id, next_id + size)))
            next_id += size
    return out


def drawn(docs, pairs="next", seed=0, length=64, short=0.1, sep_id=None):
    """(A, B, label) as lists of ids."""
    sequences = make_sequences(
        flatten(docs),
        random.Random(seed),
        pairs=pairs,
        sequence_length=length,
        short_seq_prob=short,
        sep_id=sep_id,
    )
    ids = sequences.ids.tolist()
    spans = sequences.spans.tolist()
    labels = sequences.labels.tolist()
    return [
        (ids[a:b], ids[c:d], y)
        for ((a, b), (c, d)), y in zip(spans, labels, strict=True)
    ]


def slow_pairs(docs, rng, length, short):
    """Google's rules, read from create_pretraining_data.py: lists and single tokens."""
    limit = length - 3
    for here, doc in enumerate(docs):
        target = rng.randint(2, limit) if rng.random() < short else limit
        chunk, i = [], 0
        while i < len(doc):
            chunk.append(doc[i])
            if i == len(doc) - 1 or sum(map(len, chunk)) >= target:
                cut = rng.randint(1, len(chunk) - 1) if len(chunk) > 1 else 1
                a = [t for sentence in chunk[:cut] for t in sentence]
                b, label = [], int(len(chunk) == 1 or rng.random() < 0.5)
                if label:
                    for _ in range(10):
                        there = rng.randint(0, len(docs) - 1)
                        if there != here:
                            break
                    wanted = target - len(a)
                    for sentence in docs[there][rng.randrange(len(docs[there])) :]:
                        b += sentence
                        if len(b) >= wanted:
                            break
                    i -= len(chunk) - cut
                else:
                    b = [t for sentence in chunk[cut:] for t in sentence]
                while len(a) + len(b) > limit:
                    longer = a if len(a) > len(b) else b
                    longer.pop(0 if rng.random() < 0.5 else -1)
                yield a, b, label
                chunk = []
            i += 1


def described(pairs):
    """Numbers that a wrong rule would move."""
    a = np.array([len(a) for a, _, _ in pairs])
    b = np.array([len(b) for _, b, _ in pairs])
    label = np.array([y for _, _, y in pairs])
    first = np.array([a[0] for a, _, _ in pairs])
    histogram = np.histogram(a + b, bins=8, range=(0, 62))[0] / len(pairs)
    whole = [len(pairs), label.mean(), a.mean(), b.mean(), (a * b).mean()]
    by_label = [b[label == y].mean() for y in (0, 1)]
    return np.array([*whole, *by_label, (first % 7).mean(), *histogram])


@pytest.mark.parametrize("short", [0.1, 1.0])
def test_statistics_are_those_of_googles_generator(short):
    docs, runs = documents(0), 150
    ours = [described(drawn(docs, seed=s, short=short)) for s in range(runs)]
    theirs = [
        described(list(slow_pairs(docs, random.Random(s), 64, short)))
        for s in range(1000, 1000 + runs)
    ]
    difference = np.mean(ours, 0) - np.mean(theirs, 0)
    error = np.sqrt((np.var(ours, 0) + np.var(theirs, 0)) / runs) + 1e-9
    # 15 numbers: five standard errors are beyond chance, seeds being fixed anyway.
    assert np.abs(difference / error).max() < 5


def test_statistics_on_articles_are_those_of_googles_generator():
    # The language reference that Python installs; ten topics are as long as an article.
    texts = [topics[name] for name in sorted(topics)]
    articles = ["\n".join(texts[i : i + 10]) for i in range(0, len(texts), 10)]
    docs = [
        [
            [len(word) for word in re.findall(r"\w+|[^\w\s]", sentence)]
            for sentence in re.split(r"(?<=[.!?])\s+", article)
            if sentence.strip()
        ]
        for article in articles
    ]
    ours = [described(drawn(docs, seed=s, length=128)) for s in range(8)]
    theirs = [
        described(list(slow_pairs(docs, random.Random(s), 128, 0.1)))
        for s in range(8, 16)
    ]
    difference = np.mean(ours, 0) - np.mean(theirs, 0)
    error = np.sqrt((np.var(ours, 0) + np.var(theirs, 0)) / 8) + 1e-9
    assert np.abs(difference / error).max() < 6
    assert 0.5 < np.mean(ours, 0)[1] < 0.56  # random next is a little more than half


@pytest.mark.parametrize("sizes", [(40, 3), (3, 40), (30, 30), (31, 30), (1, 2)])
def test_truncation_equals_popping_from_the_longer_segment(sizes):
    for limit in (2, 3, 11, 12, 40):
        size_a, size_b = sizes
        while size_a + size_b > limit:
            if size_a > size_b:
                size_a -= 1
            else:
                size_b -= 1
        a, b, c, d = truncate(
            (0, sizes[0]), (50, 50 + sizes[1]), limit, random.Random()
        )
        assert (b - a, d - c) == (size_a, size_b)
        assert 0 <= a <= b <= sizes[0] and 50 <= c <= d <= 50 + sizes[1]


def test_truncation_takes_from_the_front_as_often_as_from_the_back():
    rng = random.Random(3)
    fronts = [truncate((0, 100), (200, 220), 60, rng)[0] for _ in range(4000)]
    # 60 coins each: mean 30, standard error 0.06.
    assert abs(np.mean(fronts) - 30) < 0.3
    assert abs(np.var(fronts) - 15) < 2


def test_no_pair_is_longer_than_the_row_and_no_segment_empty():
    for seed in range(20):
        for a, b, _ in drawn(documents(seed), seed=seed, length=31, short=0.5):
            assert len(a) and len(b) and len(a) + len(b) + 3 <= 31


def test_sentences_displaced_by_a_random_next_are_read_again():
    docs = documents(1, most_sentences=9, most_tokens=5)
    read = []
    for a, b, label in drawn(docs, length=1000, short=0.0):
        read += a if label else a + b
    assert read == [t for doc in docs for sentence in doc for t in sentence]


def test_a_random_next_comes_from_another_document():
    docs = documents(2)
    home = {t: i for i, doc in enumerate(docs) for s in doc for t in s}
    for seed in range(10):
        for a, b, label in drawn(docs, seed=seed):
            assert (home[a[0]] != home[b[0]]) == bool(label)


def test_a_lone_sentence_always_gets_a_random_next():
    docs = [[[1, 2, 3]], [[4, 5, 6]], [[7, 8, 9]]]
    assert {y for s in range(20) for _, _, y in drawn(docs, seed=s)} == {1}


def test_next_sentences_need_two_documents():
    with pytest.raises(ValueError, match='pairs="next" needs two documents, .* has 1'):
        drawn([[[1, 2], [3, 4]]])


def test_sentence_order_swaps_neighbours_half_of_the_time():
    pairs = [p for s in range(40) for p in drawn(documents(3), "order", s, short=0.0)]
    for a, b, label in pairs:
        assert label >= 0 or not b
        if label >= 0 and len(a) + len(b) < 61:
            first, second = (b, a) if label else (a, b)
            assert first[-1] + 1 == second[0]
    labels = np.array([y for _, _, y in pairs if y >= 0])
    assert abs(labels.mean() - 0.5) < 4 * 0.5 / np.sqrt(len(labels))


def test_sentence_order_gives_a_lone_sentence_no_label():
    assert drawn([[[1, 2, 3]]], "order") == [([1, 2, 3], [], -1)]


def test_full_sentences_read_every_token_once_and_in_order():
    docs = documents(4, most_tokens=40)
    sentence_ends = {sentence[-1] for doc in docs for sentence in doc}
    longest = {t for doc in docs for s in doc if len(s) > 29 for t in s}
    read = []
    for a, b, label in drawn(docs, "none", length=31):
        assert len(a) + 2 <= 31 and not b and label == -1
        assert a[-1] in sentence_ends or a[-1] in longest
        read += a
    assert read == [t for doc in docs for sentence in doc for t in sentence]


def test_full_sentences_put_a_separator_between_documents_only():
    docs = documents(5, most_sentences=4, most_tokens=7)
    last = {doc[-1][-1] for doc in docs}
    separators = 0
    for a, _, _ in drawn(docs, "none", length=31, sep_id=3):
        assert a[0] != 3 and a[-1] != 3
        inside = [a[i - 1] for i, t in enumerate(a) if t == 3]
        assert set(inside) <= last
        assert len(inside) == len(last & set(a[:-1]))
        separators += len(inside)
    assert 0 < separators < len(docs)


def test_full_sentences_fill_a_row_before_the_next_begins():
    docs = documents(6, most_tokens=9)
    starts = {s[0]: len(s) for doc in docs for s in doc}
    rows = [a for a, _, _ in drawn(docs, "none", length=31)]
    for row, following in zip(rows, rows[1:], strict=False):
        assert len(row) + starts[following[0]] > 29


@pytest.mark.parametrize("pairs", ["next", "order"])
def test_a_seed_names_one_result(pairs):
    docs = documents(7)
    assert drawn(docs, pairs, seed=1) == drawn(docs, pairs, seed=1)
    assert drawn(docs, pairs, seed=1) != drawn(docs, pairs, seed=2)


def test_empty_sentences_and_documents_leave_no_trace():
    tokens = flatten([[], [[1], [], [2, 3]], [[]], [[4]]])
    assert tokens.ids.tolist() == [1, 2, 3, 4]
    assert (tokens.bounds, tokens.documents) == ([0, 1, 3, 4], [0, 2, 3])
