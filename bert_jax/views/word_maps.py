"""One word in many contexts: its vectors in every layer, and their picture."""

import dataclasses
import string
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.inference.word_alignment import Words
from bert_jax.views import page
from bert_jax.views.measures import mean_cosine, principal_components

SCRIPTS = ("page.js", "charts.js", "word_map.js")
# Of the text on either side of the word, in characters.
AROUND = 120
# Of a frame, in pixels: the charts and the note, and each of the first contexts.
CHARTS, CONTEXT, SHOWN = 510, 26, 20


@dataclasses.dataclass(frozen=True)
class WordMap:
    """A word wherever it stands in some texts, N times.

    Attributes:
      word: as it was asked for.
      texts: the text around each, `[N]`.
      spans: where in its text each stands, `[N, 2]`.
      groups: the name that came with each text, `[N]`; None where none came.
      vectors: `[layers + 1, N, D]`, the first those of the embeddings; a word of
        several pieces has their mean.
      others: the mean cosine between other words of the texts, `[layers + 1]`.

    >>> found = word_map(model, "a", ["a b", "c a", "e f a"])
    >>> found.vectors.shape, found.self_similarity().shape, found.points()[0].shape
    ((2, 3, 12), (2,), (3, 2))
    """

    word: str
    texts: list[str]
    spans: np.ndarray = dataclasses.field(repr=False)
    groups: list[str] | None
    vectors: np.ndarray = dataclasses.field(repr=False)
    others: np.ndarray = dataclasses.field(repr=False)

    def points(self, layer: int = -1) -> tuple[np.ndarray, np.ndarray]:
        """The vectors in two dimensions, `[N, 2]`, and the variance each holds."""
        return principal_components(self.vectors[layer])

    def self_similarity(self) -> np.ndarray:
        """The mean cosine between the word's own vectors, `[layers + 1]`.

        Self-similarity of Ethayarajh (2019). It falls where context enters; read it
        beside `others`, for in upper layers all vectors point to one side.
        """
        return np.array([mean_cosine(x) for x in self.vectors])

    def save_html(self, path: str | Path) -> None:
        """Writes the picture: one file, which needs nothing else."""
        page.write(path, self._page())

    def _repr_html_(self) -> str:
        contexts = min(len(self.texts), SHOWN)
        return page.framed(self._page(), CHARTS + CONTEXT * contexts)

    def _page(self) -> str:
        found = [self.points(layer) for layer in range(len(self.vectors))]
        facts = {
            "word": self.word,
            "contexts": [
                (text[max(0, a - AROUND) : a], text[a:b], text[b : b + AROUND])
                for text, (a, b) in zip(self.texts, self.spans, strict=True)
            ],
            "groups": self.groups,
            "points": [points.round(4).tolist() for points, _ in found],
            "shares": [shares.round(4).tolist() for _, shares in found],
            "own": self.self_similarity().round(4).tolist(),
            "others": self.others.round(4).tolist(),
        }
        return page.built(f"{self.word} in {len(self.texts)} contexts", SCRIPTS, facts)


def word_map(
    model: Any, word: str, texts: Sequence[str], groups: Sequence[str] | None = None
) -> WordMap:
    """Finds a word in texts, whatever its case, and what each layer makes of it.

    A notebook shows the vectors in two dimensions, where this ends a cell.

    Args:
      model: a `Model` with a tokenizer.
      word: one word, as the texts have it: "bank" is not "banks".
      texts: they should hold the word; those that do not only count for `others`.
      groups: a name for each text, such as its meaning; it gives the colours.

    Raises:
      ValueError: where the word stands there less than twice, or groups are too few.

    >>> found = word_map(model, "a", ["a b", "c A", "e f"], groups=["x", "y", "x"])
    >>> found.spans.tolist(), found.groups
    ([[0, 1], [2, 3]], ['x', 'y'])
    """
    if groups is not None and len(groups) != len(texts):
        raise ValueError(
            f"{len(groups)} groups came with {len(texts)} texts; give one for each"
        )
    layers = tuple(range(len(model.config.layer_order) + 1))
    found = model.embed(list(texts), pooling="tokens", layers=layers)
    wanted = _bare(word)
    places = [
        (t, w)
        for t, words in enumerate(found)
        for w, other in enumerate(words.words)
        if _bare(other) == wanted
    ]
    if len(places) < 2:
        raise ValueError(
            f"{word!r} stands in {len(texts)} texts {len(places)} times as a word of "
            "its own; give texts that hold it at least twice"
        )
    return WordMap(
        word,
        [texts[t] for t, _ in places],
        np.array([found[t].spans[w] for t, w in places]),
        None if groups is None else [str(groups[t]) for t, _ in places],
        _by_layer([found[t].vectors[w] for t, w in places], layers),
        _others(found, wanted, layers),
    )


def _bare(word):
    """Without case, and without the punctuation that some tokenizers leave on it."""
    return word.strip(string.whitespace + string.punctuation).casefold()


def _by_layer(vectors, layers):
    x = np.stack(vectors)
    return np.moveaxis(x.reshape(len(x), len(layers), -1), 1, 0)


def _others(found: list[Words], wanted: str, layers) -> np.ndarray:
    """The mean cosine between the first vectors of all other words."""
    first = {}
    for words in found:
        for word, x in zip(words.words, words.vectors, strict=True):
            if _bare(word) not in ("", wanted):
                first.setdefault(_bare(word), x)
    if len(first) < 2:
        return np.ones(len(layers))
    return np.array([mean_cosine(x) for x in _by_layer(list(first.values()), layers)])
