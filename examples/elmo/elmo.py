"""Elmo: a trained network that gives words their vectors."""

import dataclasses
import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import flax
import jax
import numpy as np
import safetensors.numpy

from examples.elmo import bilm
from examples.elmo.model import BiLstm, ElmoConfig
from examples.elmo.words import BEGIN, END, character_ids

# Sentences are padded to a multiple of so many words, so that few programs compile.
MULTIPLE = 16


@dataclasses.dataclass
class Elmo:
    """A model that gives each word of a sentence a vector in every layer.

    Attributes:
      config: of the network.
      params: `encoder`, and after pre-training `word` and `bias`, which predict words.
      words: the vocabulary of these; () without.
      history: "config", "step" and "scores" of the training run; not saved.
    """

    config: ElmoConfig
    params: Mapping[str, Any]
    words: tuple[str, ...] = ()
    history: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def features(
        self, sentences: Sequence[Sequence[str]], batch_size: int = 32
    ) -> list[np.ndarray]:
        """float32 `[layers + 1, L, 2 D]` for each sentence of L words.

        Layer 0 is the words alone, twice. Each sentence is read alone, between its two
        marks. (The LSTMs of bilm-tf keep their state from batch to batch, so that its
        vectors depend on the sentences before; `BiLstm.encode` can do that too.)
        """
        framed = [[BEGIN, *words, END] for words in sentences]
        order = sorted(range(len(framed)), key=lambda i: len(framed[i]))
        features: list[Any] = [None] * len(framed)
        for start in range(0, len(order), batch_size):
            batch = order[start : start + batch_size]
            longest = len(framed[batch[-1]])
            shape = batch_size, -(-longest // MULTIPLE) * MULTIPLE
            characters = np.zeros((*shape, self.config.max_characters), np.int32)
            for row, i in enumerate(batch):
                ids = character_ids(framed[i], self.config.max_characters)
                characters[row, : len(ids)] = ids
            layers = np.asarray(
                apply(self.config.build(), self.params["encoder"], characters)
            )
            for row, i in enumerate(batch):
                features[i] = layers[:, row, 1 : len(framed[i]) - 1].copy()
        return features

    def save(self, directory: str | Path) -> None:
        """Writes config.json, model.safetensors and, with a vocabulary, vocab.txt."""
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        text = json.dumps(vars(self.config), indent=2)
        (directory / "config.json").write_text(text + "\n")
        flat = flax.traverse_util.flatten_dict(self.params, sep="/")
        arrays = {k: np.ascontiguousarray(x) for k, x in flat.items()}
        (directory / "model.safetensors").write_bytes(safetensors.numpy.save(arrays))
        if self.words:
            (directory / "vocab.txt").write_text("\n".join(self.words) + "\n", "utf-8")

    @classmethod
    def load(cls, directory: str | Path) -> "Elmo":
        """Opens the result of `save`, or the work directory of a finished run."""
        directory = Path(directory)
        if (directory / "model/config.json").is_file():
            directory = directory / "model"
        try:
            fields = json.loads((directory / "config.json").read_text())
            config = ElmoConfig(**{**fields, "filters": tuple(fields["filters"])})
            flat = safetensors.numpy.load_file(directory / "model.safetensors")
        except DAMAGE as error:
            raise ValueError(
                f"{directory} is no ELMo, or is damaged ({error}); save it again"
            ) from error
        file = directory / "vocab.txt"
        words = file.read_text("utf-8").split("\n")[:-1] if file.exists() else ()
        params = flax.traverse_util.unflatten_dict(flat, sep="/")
        return cls(config, params, tuple(words))

    @classmethod
    def from_bilm(cls, options: str | Path, weights: str | Path) -> "Elmo":
        """Reads published weights: options.json and an HDF5 file (needs h5py)."""
        config, params = bilm.read(options, weights)
        return cls(config, {"encoder": params})


# Errors that missing or damaged files cause.
DAMAGE = OSError, ValueError, KeyError, TypeError, safetensors.SafetensorError


@functools.partial(jax.jit, static_argnums=0)
def apply(model: BiLstm, params: Mapping[str, Any], characters: jax.Array) -> jax.Array:
    """The layers of `[B, L, W]` characters, where a word has no id of 0."""
    return model.apply({"params": params}, characters, characters[..., 0])
