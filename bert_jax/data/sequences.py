"""Tokenized documents -> the sequences a model reads: pairs of segments, or full text.

The rules are those of Google's `create_pretraining_data.py` (Devlin et al., 2018),
`pairs="next"`; of ALBERT's sentence order (Lan et al., 2019), `pairs="order"`; and of
RoBERTa's full sentences (Liu et al., 2019), `pairs="none"`. Nothing is copied here:
a segment is a span of the flat token array, so truncation moves its ends.

Against Google's generator only the stream of random numbers differs: how many tokens
truncation takes from the front is one binomial draw instead of a coin per token.
"""

import itertools
import random
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

RANDOM_NEXT_TRIES = 10
UNLABELLED = -1


@dataclass
class Tokens:
    """Documents as one array: sentence i is `ids[bounds[i]:bounds[i + 1]]`, document d
    holds the sentences from `documents[d]` up to `documents[d + 1]`."""

    ids: np.ndarray
    bounds: list[int]
    documents: list[int]

    def __len__(self) -> int:
        return len(self.documents) - 1


@dataclass
class Sequences:
    """N sequences over `ids`: `spans` [N, 2, 2] hold (start, end) of segments A and B,
    B being empty where there is none; `labels` [N] are 0, 1 or -1 (no label)."""

    ids: np.ndarray
    spans: np.ndarray
    labels: np.ndarray

    def lengths(self) -> np.ndarray:
        """[N, 2]: A with its [CLS] and [SEP], B with its [SEP] (0 without a B)."""
        sizes = self.spans[:, :, 1] - self.spans[:, :, 0]
        return sizes + np.where(sizes > 0, np.array([[2, 1]]), 0)


def flatten(documents: Iterable[Sequence[Sequence[int] | np.ndarray]]) -> Tokens:
    """Joins documents of sentences of ids, without the empty ones of both."""
    sizes: list[int] = []
    starts, pieces = [0], []
    for document in documents:
        sentences = [sentence for sentence in document if len(sentence)]
        if sentences:
            pieces += sentences
            sizes += map(len, sentences)
            starts.append(len(sizes))
    ids = np.concatenate([np.zeros(0, np.int32), *pieces]).astype(np.int32)
    return Tokens(ids, [0, *itertools.accumulate(sizes)], starts)


def make_sequences(
    tokens: Tokens,
    rng: random.Random,
    *,
    pairs: str,
    sequence_length: int,
    short_seq_prob: float = 0.1,
    sep_id: int | None = None,
) -> Sequences:
    """Sequences of at most `sequence_length` tokens, special ones included.

    Args:
        pairs: "next" (1 = B comes from another document), "order" (1 = A and B are
            swapped) or "none" (one segment that may run over documents).
        short_seq_prob: share of documents cut to a shorter target, drawn uniformly
            from 2 up to the limit. RoBERTa has none, and "none" ignores it.
        sep_id: the token that "none" puts between two documents.
    """
    if pairs == "none":
        return _full_sentences(tokens, sequence_length - 2, sep_id)
    if pairs == "next" and len(tokens) < 2:
        raise ValueError(
            f'pairs="next" needs two documents, this text has {len(tokens)}; '
            'separate documents by blank lines or choose pairs="order" or "none"'
        )
    limit = sequence_length - 3
    drawn = [
        pair
        for d in range(len(tokens))
        for pair in _document_pairs(tokens, d, rng, pairs, limit, short_seq_prob)
    ]
    spans = np.array([spans for spans, _ in drawn], np.int64).reshape(-1, 2, 2)
    return Sequences(tokens.ids, spans, np.array([y for _, y in drawn], np.int8))


def _document_pairs(
    tokens: Tokens,
    d: int,
    rng: random.Random,
    pairs: str,
    limit: int,
    short_seq_prob: float,
) -> Iterator[tuple[tuple[int, int, int, int], int]]:
    """((A start, A end, B start, B end), label) of document d, front to back."""
    target = rng.randint(2, limit) if rng.random() < short_seq_prob else limit
    bounds, i, end = tokens.bounds, tokens.documents[d], tokens.documents[d + 1]
    while i < end:
        stop = _reach(bounds, i, end, target)
        middle = i + 1 if stop - i == 1 else i + rng.randint(1, stop - i - 1)
        a = bounds[i], bounds[middle]
        b = bounds[middle], bounds[stop]
        i = stop
        if pairs == "order":
            a, b, label = _in_some_order(a, b, rng)
        elif middle == stop or rng.random() < 0.5:
            b, label = _random_segment(tokens, d, target - (a[1] - a[0]), rng), 1
            i = middle  # the sentences meant for B go back into the document
        else:
            label = 0
        yield truncate(a, b, limit, rng), label


def _reach(bounds: list[int], start: int, end: int, size: int) -> int:
    """The sentence before which `size` tokens from `start` on are complete."""
    return bisect_left(bounds, bounds[start] + size, start + 1, end)


def _in_some_order(a, b, rng):
    """A and B in their order (0) or swapped (1); a lone sentence has no label.

    ALBERT's code gives a lone sentence a random partner and calls that swapped, which
    teaches topic, which sentence order was made to avoid.
    """
    if b[0] == b[1]:
        return a, b, UNLABELLED
    return (b, a, 1) if rng.random() < 0.5 else (a, b, 0)


def _random_segment(tokens: Tokens, d: int, size: int, rng: random.Random):
    """Sentences of another document from a random one on, `size` tokens if it has them.

    After ten draws of document d itself, document d is used, as in the original.
    """
    for _ in range(RANDOM_NEXT_TRIES):
        other = rng.randint(0, len(tokens) - 1)
        if other != d:
            break
    first, end = tokens.documents[other], tokens.documents[other + 1]
    start = rng.randint(first, end - 1)
    stop = _reach(tokens.bounds, start, end, size)
    return tokens.bounds[start], tokens.bounds[stop]


def truncate(
    a: tuple[int, int], b: tuple[int, int], limit: int, rng: random.Random
) -> tuple[int, int, int, int]:
    """Takes tokens from the longer span (B where equal), front or back by a coin."""
    size_a, size_b = a[1] - a[0], b[1] - b[0]
    excess = max(0, size_a + size_b - limit)
    ahead = min(excess, abs(size_a - size_b))
    turns = excess - ahead  # from here on both are equal: B, A, B, A, …
    cut_a = turns // 2 + (ahead if size_a > size_b else 0)
    return *_cut(a, cut_a, rng), *_cut(b, excess - cut_a, rng)


def _cut(span: tuple[int, int], count: int, rng: random.Random) -> tuple[int, int]:
    front = rng.getrandbits(count).bit_count()
    return span[0] + front, span[1] - (count - front)


def _full_sentences(tokens: Tokens, limit: int, sep_id: int | None) -> Sequences:
    """Whole sentences up to `limit` tokens, also across the ends of documents.

    A separator comes before each document but the first; a sequence never starts or
    ends with it. A sentence beyond the limit is cut into pieces, nothing is lost.
    """
    ids, bounds, separators = _separated(tokens, sep_id)
    starts, ends, start = [], [], 0
    while start < len(ids):
        start += start in separators
        end = bounds[bisect_right(bounds, start + limit) - 1]
        end = end if end > start else start + limit
        starts.append(start)
        ends.append(end)
        start = end
    spans = np.array([starts, ends, ends, ends], np.int64).T.reshape(-1, 2, 2)
    return Sequences(ids, spans, np.full(len(starts), UNLABELLED, np.int8))


def _separated(tokens: Tokens, sep_id: int | None):
    """ids and bounds with a separator before each later document, and their places."""
    inner = tokens.documents[1:-1]
    if sep_id is None or not inner:
        return tokens.ids, tokens.bounds, frozenset()
    bounds = np.array(tokens.bounds)
    before = np.zeros(len(bounds), int)
    before[np.array(inner) + 1] = 1
    ids = np.insert(tokens.ids, bounds[inner], sep_id)
    moved = (bounds + np.cumsum(before)).tolist()
    return ids, moved, frozenset(moved[i] for i in inner)


def pack(lengths: np.ndarray, row_length: int, per_row: int) -> np.ndarray:
    """The row [N] of each sequence of `lengths` [N]: rows hold at most `row_length`
    tokens and `per_row` sequences.

    The longest sequence goes first, into the fullest row that still takes it. Rows are
    sorted by their room, and one bit per room gives the tightest in one step, so the
    cost is that of sorting. The result depends on the lengths alone.
    """
    too_long = int(lengths.max(initial=0))
    if too_long > row_length:
        raise ValueError(f"a sequence of {too_long} exceeds rows of {row_length}")
    rows = np.empty(len(lengths), np.int64)
    open_rows: list[list[int]] = [[] for _ in range(row_length + 1)]
    held: list[int] = []  # sequences in each row
    rooms = 0  # bit r is set while some open row has room r
    for i in np.argsort(-lengths, kind="stable").tolist():
        length = int(lengths[i])
        fitting = rooms >> length
        if fitting:
            room = length + (fitting & -fitting).bit_length() - 1
            row = open_rows[room].pop()
            if not open_rows[room]:
                rooms ^= 1 << room
        else:
            row, room = len(held), row_length
            held.append(0)
        rows[i] = row
        held[row] += 1
        if held[row] < per_row:
            open_rows[room - length].append(row)
            rooms |= 1 << (room - length)
    return rows


def efficiency(lengths: np.ndarray, rows: np.ndarray, row_length: int) -> float:
    """Real tokens per position of the packed rows."""
    return float(lengths.sum()) / (row_length * len(np.unique(rows)))
