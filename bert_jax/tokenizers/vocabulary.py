"""Vocabularies: read from a file, counted after training."""

import collections
import os
from collections.abc import Collection

from bert_jax.tokenizers.text import read_text


def read_vocabulary(path: str | os.PathLike) -> dict[str, int]:
    """Piece -> id of a `vocab.txt`; duplicate lines are refused by name.

    Only a newline ends a line: pieces hold other separators of Unicode.
    """
    pieces = read_text(path).split("\n")
    if not pieces[-1]:
        pieces.pop()
    if not pieces:
        raise ValueError(f"{path} is empty; a vocabulary has one piece a line")
    counts = collections.Counter(pieces)
    repeated = [piece for piece, count in counts.items() if count > 1]
    if repeated:
        shown = ", ".join(f"{p!r} (line {pieces.index(p) + 1})" for p in repeated[:5])
        raise ValueError(
            f"{path} has {len(repeated)} pieces on several lines: {shown}; ids would "
            "exceed the vocabulary's size, so remove or rename the repeated lines"
        )
    return {piece: i for i, piece in enumerate(pieces)}


def refuse_gaps(vocabulary: dict[str, int], source: str | os.PathLike) -> None:
    """Raises ValueError unless the ids are 0, 1, 2 … to the vocabulary's size."""
    if sorted(vocabulary.values()) != list(range(len(vocabulary))):
        raise ValueError(
            f"{source} does not number its {len(vocabulary)} pieces from 0 without a "
            "gap or a repeat; was it made from a vocabulary with duplicate lines?"
        )


def refuse_more_ids(ids: int, vocab_size: int) -> None:
    """Raises ValueError when a tokenizer has ids that an encoder has not."""
    if ids > vocab_size:
        raise ValueError(
            f"the tokenizer has {ids} ids but encoder.vocab_size={vocab_size}; set it "
            "to at least that many"
        )


def refuse_other_size(vocabulary: Collection[str], vocab_size: int) -> None:
    """Raises ValueError when training made more or fewer pieces than were asked."""
    made = len(vocabulary)
    if made < vocab_size:
        raise ValueError(
            f"vocab_size={vocab_size}, but the texts support only {made} pieces; "
            f"set vocab_size={made} or give more text"
        )
    if made > vocab_size:
        raise ValueError(
            f"vocab_size={vocab_size} does not hold the {made} special tokens and "
            f"characters of the texts; set at least vocab_size={made}"
        )
