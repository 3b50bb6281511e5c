"""What the loop runs to fine-tune, whatever the task."""

import dataclasses
import functools
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from bert_jax import pretrained
from bert_jax.data.ragged import RaggedRows
from bert_jax.predict import Model
from bert_jax.pretrained import Checkpoint
from bert_jax.pretrained.families import FAMILIES
from bert_jax.tasks.pretraining_loss import Totals
from bert_jax.tasks.teaching import Lesson, computed_in, digest
from bert_jax.tokenizers import Tokenizer

INPUTS = ("input_ids", "attention_mask", "token_type_ids")


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A task with its rows at hand: what the loop runs.

    Attributes:
      sources: rows by split: "train", "eval", and those that are predicted at the end.
      labels: names of the classes; empty where there are none.
      metrics: names of scores; the first chooses the best checkpoint.
      tokenizer, max_length: of the finished model.
      start: what the parameters come from.
      files: that hold the rows.
      lesson: what another model has to teach.
    """

    sources: Mapping[str, RaggedRows]
    labels: tuple[str, ...]
    metrics: tuple[str, ...]
    tokenizer: Tokenizer
    max_length: int
    start: Checkpoint | None
    files: tuple[str, ...]
    lesson: Lesson | None = dataclasses.field(default=None, kw_only=True)

    # The class of the head, and its part that depends on the labels.
    head: ClassVar[type[nn.Module]]
    output: ClassVar[str]
    sequences_per_row: ClassVar[int] = 1

    def __post_init__(self):
        if self.lesson:
            self.lesson.demand_likeness(self)

    @property
    def constants(self) -> dict[str, Any]:
        """Arrays that the loss reads among the parameters and nothing trains."""
        return {"teacher": self.lesson.teacher.params} if self.lesson else {}

    @property
    def objective(self) -> dict[str, float]:
        """Losses by weight."""
        return self.lesson.objective if self.lesson else {"loss": 1.0}

    @property
    def best(self) -> str:
        """The score that keeps a checkpoint beyond the newest ones."""
        return self.metrics[0]

    @property
    def splits(self) -> tuple[str, ...]:
        """What is predicted when the run is over."""
        return tuple(split for split in self.sources if split != "train")

    @functools.cached_property
    def fingerprints(self) -> dict[str, Any]:
        """What data, tokenizer and teacher are; another value is another run."""
        content = [hashlib.sha256(Path(file).read_bytes()) for file in self.files]
        return {
            "data": {
                "files": [x.hexdigest()[:16] for x in content],
                "labels": list(self.labels),
            },
            "tokenizer": self.tokenizer.fingerprint,
        } | ({"teacher": digest(self.constants)} if self.lesson else {})

    @property
    def example(self) -> dict[str, np.ndarray]:
        """The least input that initialises the model."""
        return {"input_ids": np.zeros((1, 2), np.int32)}

    @property
    def fields(self) -> dict[str, Any]:
        """Those of the head."""
        return {"num_labels": max(1, len(self.labels))}

    def model(self, encoder: nn.Module) -> nn.Module:
        """The head on `encoder`."""
        return pretrained.new_head(self.head, encoder, **self.fields)

    def given(self, init_from: str) -> dict[str, Any]:
        """Parameters to start from: the encoder's, and what the head can take over."""
        start = self.start
        family = FAMILIES[start.head.encoder.config.model_type]
        ours = family.heads[family.architecture(self.head)].names
        theirs = family.heads[family.architecture(type(start.head))].names
        fields = {k: getattr(start.head, k, None) for k in self.fields}
        alike = fields == self.fields and start.labels == self.labels
        given = {"encoder": start.params["encoder"]}
        for name, published in ours.items():
            if name == self.output and not (
                isinstance(start.head, self.head) and alike
            ):
                continue
            # What is published under one name is one layer, whatever it is here: that
            # before a ModernBERT's masked LM is the one before its classifier, too.
            same = [path for path in theirs if theirs[path] == published]
            found = parameters_at(start.params, same[0]) if same else None
            given |= {name: found} if found is not None else {}
        return given

    def loss(self, model, params, batch, key) -> Totals:
        """The task's totals; with a teacher also `ce_loss`."""
        logits = self.logits(model, params, batch, key)
        totals = self.totals(model, batch, logits)
        if self.lesson:
            dtype = model.encoder.config.dtype
            teacher = computed_in(self.lesson.teacher.head, dtype)
            theirs = self.logits(teacher, params["teacher"], batch, None)
            (ours, weights), (theirs, _) = (
                self.compared(x, batch) for x in (logits, theirs)
            )
            totals["ce_loss"] = self.lesson.apart(ours, theirs, weights)
        return totals

    def logits(self, model, params, batch, key) -> jax.Array:
        """The head's output, with dropout from `key` unless it is None."""
        return model.apply(
            {"params": params},
            **{name: batch[name] for name in INPUTS},
            deterministic=key is None,
            rngs=None if key is None else {"dropout": key},
        )

    def compared(self, logits, batch) -> tuple[jax.Array, jax.Array]:
        """Logits `[..., C]` to compare with a teacher's, and weights `[...]`."""
        return logits, jnp.ones(len(logits))

    def source(self, split: str) -> RaggedRows:
        """Rows of a split."""
        return self.sources[split]

    def summary(self, totals) -> dict[str, float]:
        """Averages by name."""
        said = ("loss", "ce_loss", "accuracy")
        named = {k: totals[k] for k in said if k in totals}
        return {k: float(s) / max(float(n), 1e-9) for k, (s, n) in named.items()}

    def trained(self, model: nn.Module, params: Any) -> Model:
        """The finished model, with its verbs."""
        made = Model.of(model, params, self.tokenizer, self.labels)
        return dataclasses.replace(made, max_length=self.max_length)

    def companions(self, model: nn.Module, params: Any) -> dict[str, Model]:
        """What else is kept of the run, by the directory it is written to: nothing."""
        return {}

    def write(self, workdir: Path, split: str, predictions: Mapping) -> None:
        """Writes what was predicted, `[N, ...]` by name, for a person or a server."""

    def closing_words(self, model: Model, workdir: Path) -> str:
        """What to show when the run is over: nothing."""
        return ""

    def next_words(self, workdir: Path) -> str:
        """Where the model is, and what to type next."""
        return f"the model is in {workdir}/model"


def parameters_at(params: Mapping[str, Any], path: str) -> Any:
    """The parameters at `mlm/transform`; None where there are none."""
    for part in path.split("/"):
        params = params.get(part) if params else None
    return params
