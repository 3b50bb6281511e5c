"""A checkpoint in memory: a head on an encoder, with its parameters and tokenizer."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from flax import linen as nn

from bert_jax.pretrained.pooling import Pooling
from bert_jax.tokenizers import Tokenizer


@dataclasses.dataclass
class Checkpoint:
    """The content of a published directory.

    Attributes:
      head: a module on an encoder, which is its field `encoder`.
      params: the parameters, float32 NumPy arrays.
      tokenizer: None where the directory has none.
      labels: names of the classes, where config.json has them.
      pooling: the pooling of sentence vectors, where the directory names one.
      max_length: in tokens, where the directory limits rows further than the table of
        positions.
      extra: the other fields of config.json, which are saved again.
      history: of the run that made it: "config", "step" and "scores", for the card.

    >>> checkpoint = Checkpoint(classifier.head, classifier.params, labels=("a", "b"))
    >>> sorted(checkpoint.params), checkpoint.tokenizer is None
    (['classifier', 'encoder', 'pooler'], True)
    """

    head: nn.Module
    params: Mapping[str, Any]
    tokenizer: Tokenizer | None = None
    labels: tuple[str, ...] = ()
    pooling: Pooling | None = None
    max_length: int | None = None
    extra: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    history: Mapping[str, Any] = dataclasses.field(default_factory=dict)
