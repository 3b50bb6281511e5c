"""Fine-tuning on labelled texts and pairs: classes, or numbers (regression)."""

import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

from bert_jax import metrics, tokenizers
from bert_jax.data import tables
from bert_jax.data.ragged import RaggedRows
from bert_jax.data.tables import Columns, Table
from bert_jax.inference.model import Model
from bert_jax.models import heads
from bert_jax.objectives.losses import Totals, throughput_totals
from bert_jax.tasks import fine_tuning
from bert_jax.tasks.demo import next_steps
from bert_jax.tasks.fine_tuning import FineTuningConfig
from bert_jax.tasks.glue import GLUE, Glue
from bert_jax.tokenizers import Tokenizer
from bert_jax.views import plots

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
        max_length=max_length,
        pads_left=tokenizer.specials.pads_left,
    )


@dataclasses.dataclass(frozen=True)
class ClassificationTask(fine_tuning.FineTuningTask):
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

    def score(self, split: str, predictions: Mapping[str, Any]) -> dict[str, float]:
        """The task's scores over all rows; none without labels."""
        columns = self.rows[split].columns
        if not columns["scored"].all():
            return {}
        labels, found = columns["labels"], self.found(predictions)
        return {name: float(METRICS[name](labels, found)) for name in self.metrics}

    def found(self, predictions) -> np.ndarray:
        """Classes or numbers `[N]`."""
        logits = predictions["logits"]
        return logits.argmax(1) if self.labels else logits[:, 0]

    def write_predictions(
        self, workdir: Path, split: str, predictions: Mapping[str, Any]
    ) -> None:
        """Writes predictions/<split>.tsv as gluebenchmark.com takes it.

        Where there are labels they are a third column, and those of "eval" are drawn
        against the predictions in confusion.png.
        """
        source, found = self.rows[split], self.found(predictions)
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

    def demo(self, model: Model, workdir: Path) -> str:
        """The first held-out text with its classes."""
        return f"\nheld out: {self._asked!r}\n  {model.classify(self._asked)}"

    def next_steps(self, workdir: Path) -> str:
        """The model's directory and a command to try."""
        return next_steps(workdir, f"classify({self._asked!r})")

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
        **throughput_totals(model.encoder.config, mask, jnp.zeros(())),
    }


@dataclasses.dataclass
class ClassificationConfig(FineTuningConfig):
    """One label for each text or pair of texts, as a config says it.

    Attributes:
      name: one of GLUE's tasks, which says labels and metrics; None for any file.
      train, dev: .tsv, .csv or .jsonl files; `dev` is what is evaluated on. With a
        `name` and none of them, those of TFDS.
      text, pair, label: columns, by name or position from 0; None finds them.
      labels: names of the classes by number; none takes those of `train`.
      regression: whether labels are numbers to predict; None: where they are numbers
        and not all whole.
      metrics: names of scores; the first chooses the best checkpoint. None given: the
        task's, or else accuracy, for regression Pearson's and Spearman's correlation.

    >>> import json
    >>> row = {"text": "it works", "label": "good"}
    >>> _ = Path("texts.jsonl").write_text(json.dumps(row))
    >>> ClassificationConfig(train="texts.jsonl", dev="dev.tsv").count()
    1
    """

    name: str | None = None
    text: str | None = None
    pair: str | None = None
    label: str | None = None
    labels: tuple[str, ...] = ()
    regression: bool | None = None
    metrics: tuple[str, ...] = ()

    def resolve(self, config: Any) -> Any:
        """The shared defaults; a GLUE task without files takes those of TFDS."""
        if self.name not in GLUE or self.train or self.dev:
            return super().resolve(config)
        train, dev, test = self._glue.tfds
        named = [f"tfds:glue/{self.name}:{split}" for split in (train, dev, *test)]
        task = dataclasses.replace(self, train=named[0], dev=named[1])
        task.test = self.test or tuple(named[2:])
        return super(ClassificationConfig, task).resolve(config)

    def read(self, path: str, like: Any = None, labelled: bool = True) -> Table:
        """The rows of a file."""
        columns = Columns(self.text, self.pair, self.label, self._glue.by_width)
        return tables.read(path, like.columns if like else columns, labelled)

    def check(self) -> None:
        """Raises ValueError for a field that cannot be right."""
        super().check()
        if self.name is not None and self.name not in GLUE:
            raise ValueError(
                f"task.name={self.name!r} is none of GLUE's {', '.join(GLUE)}; "
                "leave it out for other files"
            )
        for name in self.metrics:
            if name not in METRICS:
                raise ValueError(
                    f"task.metrics has {name!r}; choose from {', '.join(METRICS)}"
                )

    def prepare(self, workdir: Path, encoder: Any, seed: int) -> ClassificationTask:
        """All files read, checked and cut into tokens."""
        content = self.content
        train, dev = content["train"], content["eval"]
        labels = self.class_names(train)
        targets = {split: _targets(x, labels) for split, x in content.items()}
        start, tokenizer = self._with_vocabulary(workdir, encoder, train).start(encoder)
        _say(content, labels)
        return ClassificationTask(
            rows={
                split: rows_of(table, targets[split], tokenizer, self.max_length)
                for split, table in content.items()
            },
            labels=labels,
            metrics=self._metrics(labels),
            tokenizer=tokenizer,
            max_length=self.max_length,
            start=start,
            content=content,
            first=(dev.texts[0], dev.pairs and dev.pairs[0]),
            glue=self._glue,
            teacher=self.loaded_teacher,
        )

    def _with_vocabulary(self, workdir, encoder, train) -> "ClassificationConfig":
        """Names a WordPiece vocabulary of `train` where nothing gives a tokenizer."""
        if self.init_from or self.tokenizer:
            return self
        texts = [*train.texts, *(train.pairs or ())]
        directory = workdir / "data/tokenizer"
        tokenizers.WordPiece.train(texts, encoder.vocab_size).save(directory)
        return dataclasses.replace(self, tokenizer=str(directory))

    @property
    def _glue(self) -> Glue:
        return GLUE[self.name] if self.name else Glue((), ())

    def class_names(self, train: Table) -> tuple[str, ...]:
        """Names of the classes; none for regression."""
        labels = self.labels or self._glue.labels
        if labels or self.name:
            return labels
        found = tables.class_names(train, self.regression)
        if len(found) == 1:
            raise ValueError(
                f"{train.path} has no label but {found[0]!r}; add rows of others"
            )
        return found

    def _metrics(self, labels):
        usual = ("accuracy",) if labels else ("pearson", "spearman")
        return self.metrics or self._glue.metrics or usual


def _targets(table, labels):
    if table.labels is None:
        return None
    return tables.classes(table, labels) if labels else tables.numbers(table)


def _say(found: Mapping[str, Table], labels: Sequence[str]) -> None:
    """What there is to learn from, and whether it is too easy to score."""
    train, dev = found["train"], found["eval"]
    same = tables.overlap(train, dev)
    if same:
        warnings.warn(
            f"{same} of the {len(dev)} rows of {dev.path} stand in {train.path} "
            "too, so scores on them are too good",
            stacklevel=3,
        )
    said = f"{len(labels)} labels ({', '.join(labels[:10])})" if labels else "numbers"
    print(f"{len(train):,} rows to train on, {len(dev):,} held out, {said}")
