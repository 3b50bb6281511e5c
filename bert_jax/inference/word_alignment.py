"""Words from the tokens that are their pieces."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from bert_jax.tokenizers import Tokenizer


class Words(NamedTuple):
    """Words of a text, their characters in it `[W, 2]`, and their vectors `[W, D]`.

    >>> (found,) = model.embed(["a bit"], pooling="tokens")
    >>> found.words, found.spans.tolist(), found.vectors.shape
    (['a', 'bit'], [[0, 1], [2, 5]], (2, 12))
    """

    words: list[str]
    spans: np.ndarray
    vectors: np.ndarray


class Pieces(NamedTuple):
    """The words that the tokens of one row make.

    Attributes:
      real: true for a token of the text, false for special ones and padding, `[L]`.
      first: the first token of each word, counted among the real ones, `[W]`.
      spans: the characters of each word in the text, `[W, 2]`.
    """

    real: np.ndarray
    first: np.ndarray
    spans: np.ndarray


def word_pieces(
    tokenizer: Tokenizer, inputs: Mapping[str, np.ndarray]
) -> Iterator[Pieces]:
    """The words of each row of a batch that was made with `offsets`."""
    ids = inputs["input_ids"]
    real = (inputs["attention_mask"] > 0) & ~np.isin(ids, list(tokenizer.special_ids))
    starts = ~tokenizer.is_continuation[ids]
    for row in range(len(ids)):
        yield row_pieces(inputs["offsets"][row], starts[row], real[row])


def row_pieces(offsets: np.ndarray, starts: np.ndarray, real: np.ndarray) -> Pieces:
    """The words of one row.

    Args:
      offsets: the characters of each token in the text, `[L, 2]`.
      starts: true for a token that begins a word, `[L]`.
      real: see `Pieces`.
    """
    number = np.cumsum(starts & real)[real]  # of the word that each token is in
    first = np.flatnonzero(np.diff(number, prepend=-1))
    last = np.append(first, len(number))[1:] - 1
    offsets = offsets[real]
    return Pieces(real, first, np.stack([offsets[first, 0], offsets[last, 1]], 1))


def word_vectors(text: str, x: np.ndarray, pieces: Pieces) -> Words:
    """The words of one row, each with the mean of its pieces' vectors `x` `[L, D]`."""
    real, first, spans = pieces
    if not len(first):
        return Words([], np.zeros((0, 2), int), np.zeros((0, x.shape[1]), np.float32))
    counts = np.diff(first, append=real.sum())
    vectors = np.add.reduceat(x[real], first) / counts[:, None].astype(np.float32)
    return Words([text[a:b] for a, b in spans], spans, vectors)
