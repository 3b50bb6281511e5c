"""Words in rows of tokens: each is predicted once, with the words around it.

A window is a run of words that fits into a row. Only its own words are predicted; the
others are their context.
"""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from bert_jax.tokenizers import Tokenizer

# So many sentences are tokenized together.
CHUNK = 1024


@dataclasses.dataclass(frozen=True)
class Rows:
    """Rows of tokens in which each of W words has one place.

    Attributes:
      ids, types: of each row, `[L]`.
      row, position: the place of the first piece of each word, `[W]`.
    """

    ids: list[np.ndarray]
    types: list[np.ndarray]
    row: np.ndarray
    position: np.ndarray


def word_pieces(
    tokenizer: Tokenizer, sentences: Sequence[Sequence[str]]
) -> list[list[list[int]]]:
    """The ids of each word of each sentence.

    A sentence is read as its words with blanks between them, so that they have the
    pieces of the same text. A word that has none, such as a control character, gets
    the unknown piece, so that every word can be predicted.
    """
    pieces = []
    for start in range(0, len(sentences), CHUNK):
        part = sentences[start : start + CHUNK]
        encoded = tokenizer.encode_spans([" ".join(words) for words in part])
        for words, (ids, spans) in zip(part, encoded, strict=True):
            # A piece belongs to the word of its last letter, as some pieces hold the
            # blank before them.
            ends = np.cumsum([len(word) + 1 for word in words]) - 1
            last = [max(a, b - 1) for a, b in spans]
            owner = np.searchsorted(ends, last, side="right")
            bounds = np.searchsorted(owner, np.arange(len(words) + 1))
            pairs = zip(bounds[:-1], bounds[1:], strict=True)
            pieces.append([ids[a:b] or [tokenizer.unk_id] for a, b in pairs])
    return pieces


def lay_out(
    tokenizer: Tokenizer,
    sentences: Sequence[Sequence[Sequence[int]]],
    documents: Sequence[int],
    max_length: int,
) -> Rows:
    """Puts every word into a row of at most `max_length` tokens.

    Args:
      tokenizer: knows the special tokens of a row.
      sentences: the ids of each word of each sentence, at least one a word; those
        beyond a whole row are left out.
      documents: the document of each sentence, ascending. A sentence is read with as
        much of its document on either side as fits; one that is too long is cut
        between words, into parts of half a row.
      max_length: in tokens.
    """
    before, after = ([slot.token_id for slot in side] for side in tokenizer.frame)
    types = [[slot.type_id for slot in side] for side in tokenizer.frame]
    room = max_length - len(before) - len(after)
    if room < 1:
        raise ValueError(f"max_length={max_length} holds no word; raise it")
    words = [np.array(word[:room]) for sentence in sentences for word in sentence]
    starts = np.cumsum([0, *map(len, words)])
    flat = np.concatenate([*words, []]).astype(np.int32)
    rows = Rows([], [], *np.zeros((2, len(words)), np.int64))
    for first, stop, low, high in _parts(starts, sentences, documents, room):
        a, b = widened(starts, first, stop, low, high, room)
        rows.row[first:stop] = len(rows.ids)
        rows.position[first:stop] = starts[first:stop] - starts[a] + len(before)
        inner = flat[starts[a] : starts[b]]
        rows.ids.append(np.array([*before, *inner, *after], np.int32))
        rows.types.append(np.array([*types[0], *[0] * len(inner), *types[1]], np.int32))
    return rows


def _parts(
    starts: np.ndarray,
    sentences: Sequence[Sequence[Sequence[int]]],
    documents: Sequence[int],
    room: int,
) -> Iterator[tuple[int, int, int, int]]:
    """First word of a part and the one behind it, and those of its document."""
    ends = np.cumsum([0, *map(len, sentences)])
    lows = ends[np.searchsorted(documents, documents, side="left")]
    highs = ends[np.searchsorted(documents, documents, side="right")]
    bounds = ends[:-1], ends[1:], lows, highs
    for first, stop, low, high in zip(*map(np.ndarray.tolist, bounds), strict=True):
        whole = starts[stop] - starts[first] <= room
        while first < stop:
            last = stop
            if not whole:
                limit = starts[first] + room // 2
                last = int(np.searchsorted(starts, limit, side="right")) - 1
                last = min(max(last, first + 1), stop)
            yield first, last, low, high
            first = last


def widened(
    starts: np.ndarray, first: int, stop: int, low: int, high: int, room: int
) -> tuple[int, int]:
    """The words `[first, stop)` and as many around them, evenly, as fit.

    Args:
      starts: the first piece of each word, and the end of the last, `[W + 1]`.
      first, stop: the words that must be included.
      low, high: no word outside of `[low, high)` is taken.
      room: in pieces.
    """
    spare = room - (starts[stop] - starts[first])
    right = starts[high] - starts[stop]
    # One side takes the rest of the other's half, if that is short.
    left = max(spare // 2, spare - right)
    a = max(low, int(np.searchsorted(starts, starts[first] - left, side="left")))
    right = spare - (starts[first] - starts[a])
    b = int(np.searchsorted(starts, starts[stop] + right, side="right")) - 1
    return a, min(b, high)
