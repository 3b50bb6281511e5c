"""Teachers of fine-tuning, and helpers for all models that teach."""

import dataclasses
import functools
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar

import jax
import numpy as np
from flax import linen as nn

from bert_jax.inference.model import Model, load
from bert_jax.objectives.distillation import Total, soft_targets, squared_distance
from bert_jax.objectives.losses import Params
from bert_jax.tokenizers import Tokenizer

Head = TypeVar("Head", bound=nn.Module)


def with_dtype(head: Head, dtype: str) -> Head:
    """A head whose encoder computes in `dtype`."""
    config = dataclasses.replace(head.encoder.config, dtype=dtype)
    return head.clone(encoder=config.build())


def params_digest(params: Params) -> str:
    """Sixteen hex digits of SHA-256 over the values of arrays."""
    digest = hashlib.sha256()
    for x in jax.tree.leaves(params):
        digest.update(np.ascontiguousarray(x).tobytes())
    return digest.hexdigest()[:16]


class Taught(Protocol):
    """The part of a fine-tuning task that its teacher has to fit."""

    @property
    def head(self) -> type[nn.Module]:
        """The class of the head."""
        ...

    @property
    def fields(self) -> Mapping[str, Any]:
        """Fields of the head."""
        ...

    @property
    def labels(self) -> Sequence[str]:
        """Names of the classes, if there are any."""
        ...

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the rows."""
        ...

    @property
    def max_length(self) -> int:
        """Tokens in the longest row."""
        ...


@dataclasses.dataclass(frozen=True)
class Teacher:
    """A fine-tuned model whose predictions another one learns.

    Attributes:
      source: a directory or a name on the Hub.
      alpha_ce: the weight of its predictions in the loss; labels have the rest.
      temperature: at which predictions are compared.
    """

    source: str
    alpha_ce: float
    temperature: float

    @functools.cached_property
    def model(self) -> Model:
        """The teacher's model."""
        return load(self.source)

    @property
    def loss_weights(self) -> dict[str, float]:
        """The weights of the loss on labels and of the loss on predictions."""
        return {"loss": 1 - self.alpha_ce, "ce_loss": self.alpha_ce}

    def teacher_loss(
        self, logits: jax.Array, targets: jax.Array, weights: jax.Array
    ) -> Total:
        """Distance of `[..., C]` logits from the teacher's, as (sum, count).

        Numbers, which have one logit each, are compared by their squared distance.
        """
        if logits.shape[-1] > 1:
            return soft_targets(logits, targets, weights, self.temperature)
        return squared_distance(logits, targets, weights)

    def check_task(self, task: Taught) -> None:
        """Raises ValueError unless the teacher solves a fine-tuning task.

        It must have the head, the labels and the vocabulary of the task, and read rows
        of its length.
        """
        model, labels = self.model, task.labels
        vocabulary = model.tokenizer and model.tokenizer.fingerprint
        remedy = "fine-tune one on the same file first"
        if not isinstance(model.head, task.head):
            problem = f"is a {type(model.head).__name__}, not a {task.head.__name__}"
        elif any(getattr(model.head, k) != x for k, x in task.fields.items()) or (
            labels and tuple(model.labels) != tuple(labels)
        ):
            others = ", ".join(model.labels)
            problem = f"has the labels {others}, not {', '.join(labels)}"
        elif vocabulary != task.tokenizer.fingerprint:
            problem = "has another vocabulary than init_from or task.tokenizer"
        elif model.config.max_length < task.max_length:
            problem = f"reads {model.config.max_length} tokens"
            remedy = f"set task.max_length={model.config.max_length}"
        else:
            return
        raise ValueError(f"task.teacher={self.source!r} {problem}; {remedy}")
