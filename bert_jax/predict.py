"""Model: the verbs a user types."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from bert_jax import pretrained
from bert_jax.models import heads
from bert_jax.models.bert import BertConfig
from bert_jax.pretrained import Pooling
from bert_jax.tokenizers import Tokenizer


@dataclasses.dataclass
class Model:
    """A trained model with its tokenizer.

    Attributes:
      head: the module that `model(**batch)` applies, on its field `encoder`.
      params: its parameters; those of the encoder are `params["encoder"]`.
      tokenizer: of its vocabulary.
      labels: names of the classes, where there are some.
      pooling: how `embed` makes one vector of many, where a checkpoint says it.
      max_length: the longest row in tokens, where it is less than the positions.
    """

    head: nn.Module
    params: Mapping[str, Any]
    tokenizer: Tokenizer | None = None
    labels: tuple[str, ...] = ()
    pooling: Pooling | None = None
    max_length: int | None = None

    @classmethod
    def of(
        cls,
        module: nn.Module,
        params: Mapping[str, Any],
        tokenizer: Tokenizer | None = None,
        labels: Sequence[str] = (),
    ) -> "Model":
        """A model from the pieces a training run ends with."""
        return cls(module, jax.tree.map(jnp.asarray, params), tokenizer, tuple(labels))

    @property
    def encoder(self) -> nn.Module:
        """The encoder, whose parameters are `params["encoder"]`."""
        return self.head.encoder

    @property
    def config(self) -> BertConfig:
        """The encoder's config."""
        return self.encoder.config

    def __call__(self, **batch: Any) -> Any:
        """The head's output for arrays as the tokenizer gives them, as float32.

        Hidden states `[B, L, D]` without a head, logits otherwise: `[B, C]`,
        `[B, L, C]`, span answers `[B, L, 2]`, masked LM `[B, L, V]` (`[B, P, V]` with
        `positions`), pre-training a pair of these and `[B, 2]`.
        """
        return _apply(self.head, self.params, batch)

    def fill_mask(self, text: str, k: int = 5) -> list[list[tuple[str, float]]]:
        """For each mask of the text, the `k` likeliest tokens with probabilities."""
        batch = self.tokenizer(text, max_length=self.max_length)
        positions = np.flatnonzero(batch["input_ids"][0] == self.tokenizer.mask_id)
        if not len(positions):
            mask = self.tokenizer.id_to_token(self.tokenizer.mask_id)
            raise ValueError(f"the text has no {mask}; write one where a word is to go")
        output = self(**batch, positions=positions[None])
        logits = output[0] if isinstance(self.head, heads.Pretraining) else output
        probabilities = np.asarray(jax.nn.softmax(logits[0]))
        best = np.argsort(-probabilities)[:, :k]
        return [
            [(self.tokenizer.id_to_token(i), float(row[i])) for i in ids]
            for ids, row in zip(best, probabilities, strict=True)
        ]

    def save(self, directory: str | Path) -> None:
        """Writes a directory that `load` and transformers read."""
        pretrained.save(directory, self._checkpoint())

    def save_tf1(self, directory: str | Path) -> None:
        """Writes a directory that google-research/bert and `load` read."""
        pretrained.save_tf1(directory, self._checkpoint())

    def _checkpoint(self) -> pretrained.Checkpoint:
        return pretrained.Checkpoint(
            self.head,
            self.params,
            self.tokenizer,
            self.labels,
            self.pooling,
            self.max_length,
        )


def load(source: str | Path) -> Model:
    """Opens a published or trained model: a directory, or a name on the Hub."""
    found = pretrained.load(source)
    params = jax.tree.map(jnp.asarray, found.params)
    return Model(
        found.module,
        params,
        found.tokenizer,
        found.labels,
        found.pooling,
        found.max_length,
    )


@functools.partial(jax.jit, static_argnums=0)
def _apply(head, params, batch):
    output = head.apply({"params": params}, **batch)
    return jax.tree.map(lambda x: x.astype(jnp.float32), output)
