"""What learning from another model takes: who teaches, and measures of distance."""

import dataclasses
import functools
import hashlib
from typing import Any

import jax
import numpy as np
from flax import linen as nn

from bert_jax.inference.model import Model, load
from bert_jax.objectives.distillation import Total, soft_targets, squared_distance


def computed_in(head: nn.Module, dtype: str) -> nn.Module:
    """A loaded head on an encoder that computes in `dtype`."""
    config = dataclasses.replace(head.encoder.config, dtype=dtype)
    return head.clone(encoder=config.build())


def digest(tree: Any) -> str:
    """Sixteen hex digits of the values of arrays."""
    total = hashlib.sha256()
    for x in jax.tree.leaves(tree):
        total.update(np.ascontiguousarray(x).tobytes())
    return total.hexdigest()[:16]


@dataclasses.dataclass(frozen=True)
class Teacher:
    """What a fine-tuned model has to teach another one of its kind.

    Attributes:
      source: the teacher, a directory or a name on the Hub.
      alpha_ce: the weight of what it predicts; labels have the rest.
      temperature: at which predictions are compared.
    """

    source: str
    alpha_ce: float
    temperature: float

    @functools.cached_property
    def teacher(self) -> Model:
        """Who teaches."""
        return load(self.source)

    @property
    def loss_weights(self) -> dict[str, float]:
        """The loss on labels, and that on what the teacher predicts."""
        return {"loss": 1 - self.alpha_ce, "ce_loss": self.alpha_ce}

    def apart(self, logits: jax.Array, theirs: jax.Array, weights: jax.Array) -> Total:
        """How far `[..., C]` predictions are from the teacher's, as (sum, count).

        Numbers, which have one logit each, are compared by their squared distance.
        """
        if logits.shape[-1] > 1:
            return soft_targets(logits, theirs, weights, self.temperature)
        return squared_distance(logits, theirs, weights)

    def demand_likeness(self, task: Any) -> None:
        """Raises ValueError unless the teacher knows what a prepared task asks."""
        head, labels, teacher = task.head, task.labels, self.teacher
        found = teacher.tokenizer and teacher.tokenizer.fingerprint
        remedy = "fine-tune one on the same file first"
        if not isinstance(teacher.head, head):
            wrong = f"is a {type(teacher.head).__name__}, not a {head.__name__}"
        elif any(getattr(teacher.head, k) != x for k, x in task.fields.items()) or (
            labels and tuple(teacher.labels) != tuple(labels)
        ):
            theirs = ", ".join(teacher.labels)
            wrong = f"has the labels {theirs}, not {', '.join(labels)}"
        elif found != task.tokenizer.fingerprint:
            wrong = "has another vocabulary than init_from or task.tokenizer"
        elif teacher.config.max_length < task.max_length:
            wrong = f"reads {teacher.config.max_length} tokens"
            remedy = f"set task.max_length={teacher.config.max_length}"
        else:
            return
        raise ValueError(f"task.teacher={self.source!r} {wrong}; {remedy}")
