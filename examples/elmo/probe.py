"""Linear probes on ELMo's layers, beside those on BERT's in `examples/probes`."""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from bert_jax.data import Sentences, Table
from examples.elmo.elmo import Elmo
from examples.elmo.words import split
from examples.probes.probe import TextProbe, WordProbe

# Sentences whose words' vectors are in memory together.
TOGETHER = 512


def vectors(model: Elmo, sentences: Sequence[Sequence[str]]) -> Iterator[np.ndarray]:
    """`[L, layers + 1, 2 D]` for each sentence of L words."""
    for start in range(0, len(sentences), TOGETHER):
        for layers in model.features(sentences[start : start + TOGETHER]):
            yield layers.swapaxes(0, 1)


@dataclasses.dataclass
class ElmoTextProbe(TextProbe):
    """Classes of texts from the means of their words' vectors; `init_from` is an ELMo.

    >>> ElmoTextProbe().poolings
    ('mean',)
    """

    poolings: tuple[str, ...] = ("mean",)

    def start(self) -> tuple[Elmo, int]:
        """The model, and how many layers it has above the words alone."""
        return _start(self.init_from)

    def states(self, model: Elmo, data: Table, pooling: str) -> np.ndarray:
        """Means over the words of texts, `[N, layers + 1, 2 D]`."""
        texts = [split(text) for text in data.texts]
        return np.stack([x.mean(0) for x in vectors(model, texts)])


@dataclasses.dataclass
class ElmoWordProbe(WordProbe):
    """Labels of words, each from its vector; `init_from` is an ELMo."""

    def start(self) -> tuple[Elmo, int]:
        """The model, and how many layers it has above the words alone."""
        return _start(self.init_from)

    def states(self, model: Elmo, data: Sentences, pooling: str) -> np.ndarray:
        """Vectors of all words, `[N, layers + 1, 2 D]`."""
        return np.concatenate(list(vectors(model, data.words)))


def _start(init_from):
    model = Elmo.load(init_from)
    return model, model.config.num_hidden_layers
