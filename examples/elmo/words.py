"""Words as the characters that ELMo reads."""

import re
from collections.abc import Sequence

import numpy as np

# Begin and end of a sentence, and words outside the vocabulary, as in bilm-tf.
BEGIN, END, UNKNOWN = SPECIAL = ("<S>", "</S>", "<UNK>")

# Ids of characters: bytes, then marks of sentences and words, then padding.
OF_BEGIN, OF_END, WORD_BEGINS, WORD_ENDS, PAD = range(256, 261)
CHARACTERS = 261

# `<unk>` is Wikitext's mark of a rare word.
_WORD = re.compile(r"<unk>|\w+(?:[-'’.,]\w+)*|[^\w\s]")


def split(text: str) -> list[str]:
    """The words and punctuation marks of a text; `<unk>` is `UNKNOWN`.

    >>> split("Don't stop: it's the U.S. in 3.5 years")
    ["Don't", 'stop', ':', "it's", 'the', 'U.S', '.', 'in', '3.5', 'years']
    """
    return [UNKNOWN if word == "<unk>" else word for word in _WORD.findall(text)]


def character_ids(words: Sequence[str], length: int) -> np.ndarray:
    """int32 `[N, length]`: the characters of N words, counted from 1.

    A word is its bytes in UTF-8 between two marks, cut to `length`, and then padding,
    which the convolutions read like a character. 0 is left for places without a word.
    bilm-tf counts from 0 in training and from 1 in inference; here it is always 1.

    >>> character_ids(["at", "<S>"], 5)
    array([[259,  98, 117, 260, 261],
           [259, 257, 260, 261, 261]], dtype=int32)
    """
    ids = np.full((len(words), length), PAD, np.int32)
    marks = {BEGIN: [OF_BEGIN], END: [OF_END]}
    for row, word in zip(ids, words, strict=True):
        inside = marks.get(word) or list(word.encode(errors="replace")[: length - 2])
        row[: len(inside) + 2] = [WORD_BEGINS, *inside, WORD_ENDS]
    return ids + 1
