"""`Model.word_map`: one word in many contexts, by its vectors in every layer."""

import dataclasses
import string
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bert_jax.files import counted
from bert_jax.inference import checks
from bert_jax.inference.embed import embed_words
from bert_jax.inference.word_alignment import Words
from bert_jax.tokenizers.text import as_list, listed
from bert_jax.views import page, word_map_page
from bert_jax.views.measures import mean_cosine, principal_components

if TYPE_CHECKING:
    from bert_jax.inference.model import Model


@dataclasses.dataclass(frozen=True)
class WordMap:
    """A word at the N places where some texts have it.

    Attributes:
      word: the word.
      texts: the text of each place, `[N]`.
      spans: the characters of each place in its text, `[N, 2]`.
      groups: the name of each text's group, `[N]`, or None.
      vectors: `[layers + 1, N, D]`, the first those of the embeddings; a word of
        several pieces has their mean.
      others: the mean cosine between other words of the texts, `[layers + 1]`.

    >>> places = model.word_map("a", ["a b", "c a", "e f a"])
    >>> places.vectors.shape, places.self_similarity().shape, places.points()[0].shape
    ((2, 3, 12), (2,), (3, 2))
    """

    word: str
    texts: list[str]
    spans: np.ndarray = dataclasses.field(repr=False)
    groups: list[str] | None
    vectors: np.ndarray = dataclasses.field(repr=False)
    others: np.ndarray = dataclasses.field(repr=False)

    def points(self, layer: int = -1) -> tuple[np.ndarray, np.ndarray]:
        """The vectors in two dimensions, `[N, 2]`, and the variance of each."""
        return principal_components(self.vectors[layer])

    def self_similarity(self) -> np.ndarray:
        """The mean cosine between the word's own vectors, `[layers + 1]`.

        Self-similarity of Ethayarajh (2019). It falls where context changes the
        vectors. Compare it with `others`: in upper layers all vectors point in similar
        directions.
        """
        return np.array([mean_cosine(x) for x in self.vectors])

    def save_html(self, path: str | Path) -> None:
        """Writes an interactive page: one file, which needs nothing else."""
        page.write(path, word_map_page.html(**vars(self)))

    def _repr_html_(self) -> str:
        height = word_map_page.height(len(self.texts))
        return page.frame(word_map_page.html(**vars(self)), height)


def word_map(
    model: "Model", word: str, texts: Sequence[str], groups: Sequence[str] | None
) -> WordMap:
    """See `Model.word_map`."""
    texts = listed(texts, "texts")
    groups = None if groups is None else as_list(groups, "groups")
    checks.check_string("word", word)
    if groups is not None and len(groups) != len(texts):
        raise ValueError(
            f"{counted(len(groups), 'group')} came with {counted(len(texts), 'text')}; "
            "give one for each"
        )
    layers = tuple(range(len(model.config.layer_order) + 1))
    aligned = embed_words(model, texts, layers, batch_size=32)
    wanted = _bare(word)
    places = [
        (t, w)
        for t, words in enumerate(aligned)
        for w, other in enumerate(words.words)
        if _bare(other) == wanted
    ]
    if len(places) < 2:
        raise ValueError(
            f"{word!r} occurs {counted(len(places), 'time')} as a word of its own in "
            f"{counted(len(texts), 'text')}; give texts that hold it at least twice"
        )
    return WordMap(
        word,
        [texts[t] for t, _ in places],
        np.array([aligned[t].spans[w] for t, w in places]),
        None if groups is None else [str(groups[t]) for t, _ in places],
        _by_layer([aligned[t].vectors[w] for t, w in places], layers),
        _similarity_of_others(aligned, wanted, layers),
    )


def _bare(word: str) -> str:
    """A word in lower case, without punctuation, which some tokenizers leave on it."""
    return word.strip(string.whitespace + string.punctuation).casefold()


def _by_layer(vectors: list[np.ndarray], layers: tuple[int, ...]) -> np.ndarray:
    """Vectors `[layers * D]` as one array `[layers, N, D]`."""
    x = np.stack(vectors)
    return np.moveaxis(x.reshape(len(x), len(layers), -1), 1, 0)


def _similarity_of_others(
    aligned: list[Words], wanted: str, layers: tuple[int, ...]
) -> np.ndarray:
    """The mean cosine between the first vectors of all other words."""
    first: dict[str, np.ndarray] = {}
    for words in aligned:
        for word, x in zip(words.words, words.vectors, strict=True):
            if _bare(word) not in ("", wanted):
                first.setdefault(_bare(word), x)
    if len(first) < 2:
        return np.ones(len(layers))
    return np.array([mean_cosine(x) for x in _by_layer(list(first.values()), layers)])
