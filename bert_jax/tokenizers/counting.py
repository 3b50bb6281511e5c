"""Counts of words, which vocabularies are trained on."""

import collections
from collections.abc import Iterable, Iterator

from tokenizers import normalizers, pre_tokenizers

# Beyond this many different words the rarest are dropped, so that memory stays
# bounded for any corpus: about half a gigabyte.
MOST_WORDS = 4_000_000


def word_counts(
    texts: Iterable[str],
    normalizer: normalizers.Normalizer,
    pre_tokenizer: pre_tokenizers.PreTokenizer,
) -> dict[str, int]:
    """Word -> count over a stream of texts, after normalization and splitting.

    Both act inside the bounds of whitespace, so that each different word needs them
    only once.
    """
    raw: collections.Counter[str] = collections.Counter()
    for text in texts:
        raw.update(text.split())
        if len(raw) > MOST_WORDS:
            raw = _more_frequent_half(raw)
    counts: collections.Counter[str] = collections.Counter()
    for word, count in raw.items():
        normal = normalizer.normalize_str(word)
        for piece, _ in pre_tokenizer.pre_tokenize_str(normal):
            counts[piece] += count
    return counts


def _more_frequent_half(raw: collections.Counter[str]) -> collections.Counter[str]:
    rarest = 1
    while len(raw) > MOST_WORDS // 2:
        raw = collections.Counter({w: n for w, n in raw.items() if n > rarest})
        rarest += 1
    return raw


def frequent_characters(counts: dict[str, int], size: int) -> set[str]:
    """The `size` most frequent characters; by code point where counts are equal."""
    characters: collections.Counter[str] = collections.Counter()
    for word, count in counts.items():
        for character in word:
            characters[character] += count
    ranked = sorted(characters, key=lambda c: (-characters[c], c))
    return set(ranked[:size])


def repeated(counts: dict[str, int]) -> Iterator[str]:
    """Texts of about a thousand words in which every word occurs as often as counted,
    which is how the library's trainers take their counts."""
    line: list[str] = []
    for word, count in sorted(counts.items()):
        for start in range(0, count, 1000):
            line += [word] * min(1000, count - start)
            if len(line) >= 1000:
                yield " ".join(line)
                line = []
    yield " ".join(line)
