"""What the loop runs to classify: rows, loss and scores."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

from bert_jax import metrics, plots
from bert_jax.data.ragged import RaggedRows
from bert_jax.data.tables import Table
from bert_jax.models import heads
from bert_jax.predict import Model
from bert_jax.tasks import finetuned_run
from bert_jax.tasks.glue import Glue
from bert_jax.tasks.pretraining_loss import Totals, work
from bert_jax.tasks.showcase import next_words
from bert_jax.tokenizers import Tokenizer

METRICS = {
    "accuracy": metrics.accuracy,
    "f1": metrics.f1,
    "matthews": metrics.matthews,
    "pearson": metrics.pearson,
    "spearman": metrics.spearman,
}

# So many rows are tokenized together.
CHUNK = 1024


def rows_of(
    table: Table, targets: Sequence[float] | None, tokenizer: Tokenizer, max_length: int
) -> RaggedRows:
    """A table as tokens, with `labels` `[N]`: int32 classes or float32 numbers.

    Without targets they are 0, and `scored` says so.
    """
    ids, types = [], []
    for start in range(0, len(table), CHUNK):
        part = slice(start, start + CHUNK)
        pairs = table.pairs and table.pairs[part]
        batch = tokenizer(table.texts[part], pairs, max_length=max_length)
        for row, real in enumerate(batch["attention_mask"] > 0):
            ids.append(batch["input_ids"][row, real])
            types.append(batch["token_type_ids"][row, real])
    labels = np.zeros(len(ids), int) if targets is None else np.asarray(targets)
    kind = np.int32 if labels.dtype.kind == "i" else np.float32
    return RaggedRows(
        {"input_ids": ids, "token_type_ids": types},
        fill={"input_ids": tokenizer.pad_id, "token_type_ids": 0},
        columns={
            "labels": labels.astype(kind),
            "scored": np.full(len(ids), targets is not None),
        },
        longest=max_length,
        pads_left=tokenizer.specials.pads_left,
    )


@dataclasses.dataclass(frozen=True)
class Prepared(finetuned_run.Prepared):
    """Classification with its rows at hand; no `labels` for regression.

    `first` is the first held-out text and its pair, `glue` how predictions are written.
    """

    first: tuple[str, str | None]
    glue: Glue

    head = heads.SequenceClassifier
    output = "classifier"

    def totals(self, model, batch, logits) -> Totals:
        """See `totals_of`."""
        return totals_of(model, batch, logits)

    def evaluate(self, model, params, batch) -> tuple[dict, dict]:
        """Totals, and `logits` `[B, C]`."""
        logits = self.logits(model, params, batch, None)
        return totals_of(model, batch, logits), {"logits": logits}

    def score(self, predictions, source: RaggedRows) -> dict[str, float]:
        """The task's scores over all rows; none without labels."""
        if not source.columns["scored"].all():
            return {}
        labels, found = source.columns["labels"], self.found(predictions)
        return {name: float(METRICS[name](labels, found)) for name in self.metrics}

    def found(self, predictions) -> np.ndarray:
        """Classes or numbers `[N]`."""
        logits = predictions["logits"]
        return logits.argmax(1) if self.labels else logits[:, 0]

    def write(self, workdir: Path, split: str, predictions) -> None:
        """Writes predictions/<split>.tsv as gluebenchmark.com takes it.

        Where there are labels they are a third column, and those of "eval" are drawn
        against the predictions in confusion.png.
        """
        source, found = self.source(split), self.found(predictions)
        labels = source.columns["labels"] if source.columns["scored"].all() else None
        if split == "eval" and self.labels:
            plots.confusion(labels, found, self.labels, workdir / "confusion.png")
        columns = {"index": range(len(found)), "prediction": self._spelt(found)}
        if labels is not None:
            columns["label"] = self._spelt(labels)
        rows = [columns, *zip(*columns.values(), strict=True)]
        file = workdir / f"predictions/{self.glue.files.get(split, split)}.tsv"
        file.parent.mkdir(exist_ok=True)
        file.write_text("".join("\t".join(map(str, row)) + "\n" for row in rows))

    def _spelt(self, values):
        if self.labels:
            return [self.labels[i] for i in values]
        return [f"{x:.3f}" for x in np.clip(values, *self.glue.between)]

    def closing_words(self, model: Model, workdir: Path) -> str:
        """What to show when the run is over."""
        return f"\nheld out: {self._asked!r}\n  {model.classify(self._asked)}"

    def next_words(self, workdir: Path) -> str:
        """Where the model is, and what to type next."""
        return next_words(workdir, f"classify({self._asked!r})")

    @property
    def _asked(self):
        text, pair = self.first
        return text if pair is None else (text, pair)


def totals_of(
    model: nn.Module, batch: Mapping[str, jax.Array], logits: jax.Array
) -> Totals:
    """Sums and counts: loss, for classes accuracy, tokens and flops.

    The loss is cross-entropy, or for one output (regression) the squared error, on the
    labels as they are.

    Args:
      batch: `labels` `[B]`, `attention_mask` `[B, L]`, and `valid` bool `[B]` where
        some rows only fill it.
      logits: `[B, C]`.

    >>> batch = {"labels": jnp.array([1, 0]), "attention_mask": jnp.ones((2, 7), int)}
    >>> totals = totals_of(classifier.head, batch, jnp.array([[0.0, 9.0], [0.0, 9.0]]))
    >>> [float(x) for x in totals["accuracy"]]
    [1.0, 2.0]
    """
    labels = batch["labels"]
    weights = batch.get("valid", jnp.ones(len(labels), bool)).astype(jnp.float32)
    count, totals = weights.sum(), {}
    if model.num_labels == 1:
        losses = jnp.square(logits[:, 0] - labels)
    else:
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
        right = logits.argmax(-1) == labels
        totals["accuracy"] = (right * weights).sum(), count
    mask = batch["attention_mask"] * (weights > 0)[:, None]
    return {
        "loss": ((losses * weights).sum(), count),
        **totals,
        **work(model.encoder.config, mask, jnp.zeros(())),
    }
