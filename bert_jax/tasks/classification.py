"""Fine-tuning on labelled texts and pairs, GLUE among them: classes or numbers."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

from bert_jax import files, metrics, tokenizers
from bert_jax.data import tables
from bert_jax.data.ragged import RaggedRows
from bert_jax.data.tables import Columns, Table
from bert_jax.files import counted
from bert_jax.inference.classify import TRUNCATION, Prediction, Text
from bert_jax.inference.model import Model
from bert_jax.models import heads
from bert_jax.models.config import EncoderConfig
from bert_jax.objectives.losses import Batch, Params, Totals, throughput_totals
from bert_jax.tasks import fine_tuning
from bert_jax.tasks.demo import Call, next_steps
from bert_jax.tasks.fine_tuning import FineTuningConfig, check_pooling, row_pooling
from bert_jax.tasks.run_config import Run
from bert_jax.tokenizers import Tokenizer
from bert_jax.tokenizers.rows import TRUNCATIONS
from bert_jax.views import plots

METRICS = {
    "accuracy": metrics.accuracy,
    "f1": metrics.f1,
    "matthews": metrics.matthews,
    "pearson": metrics.pearson,
    "spearman": metrics.spearman,
}


@dataclasses.dataclass(frozen=True)
class Glue:
    """A task of GLUE (Wang et al., 2018).

    Attributes:
      labels: as in its files, by number; none for regression.
      metrics: the official ones; the first decides which checkpoint is best.
      files: names of predictions on gluebenchmark.com, by the name of the test file.
      between: the smallest and the largest predicted number.
      tfds: its train, dev and test splits in TFDS.
      by_width: columns of its files without a header, by the number of columns.
    """

    labels: tuple[str, ...]
    metrics: tuple[str, ...] = ("accuracy",)
    files: Mapping[str, str] = dataclasses.field(default_factory=dict)
    between: tuple[float, float] = (-math.inf, math.inf)
    tfds: tuple[str, str, tuple[str, ...]] = ("train", "validation", ("test",))
    by_width: Mapping[int, Columns] = dataclasses.field(default_factory=dict)


_YES = ("0", "1")
_FOLLOWS = ("entailment", "not_entailment")

GLUE = {
    "cola": Glue(
        _YES,
        ("matthews",),
        {"test": "CoLA"},
        # Source, label, the author's own mark, sentence.
        by_width={4: Columns(text=3, label=1)},
    ),
    "sst2": Glue(_YES, files={"test": "SST-2"}),
    "mrpc": Glue(_YES, ("f1", "accuracy"), {"test": "MRPC"}),
    "qqp": Glue(_YES, ("f1", "accuracy"), {"test": "QQP"}),
    "stsb": Glue((), ("pearson", "spearman"), {"test": "STS-B"}, between=(0, 5)),
    "mnli": Glue(
        # The order of the models on the Hub; Google's is contradiction, entailment,
        # neutral.
        ("entailment", "neutral", "contradiction"),
        # Accuracy is MNLI's own, Matthews' correlation that of its diagnostics (AX).
        ("accuracy", "matthews"),
        {
            "test_matched": "MNLI-m",
            "test_mismatched": "MNLI-mm",
            "diagnostic": "AX",
            "diagnostic-full": "AX",
        },
        tfds=(
            "train",
            "validation_matched",
            ("validation_mismatched", "test_matched", "test_mismatched"),
        ),
    ),
    "qnli": Glue(_FOLLOWS, files={"test": "QNLI"}),
    "rte": Glue(_FOLLOWS, files={"test": "RTE"}),
    "wnli": Glue(_YES, files={"test": "WNLI"}),
}

# Rows that are tokenized together; labels in a demonstration.
CHUNK, SHOWN_LABELS = 1024, 5


def rows_of(
    table: Table,
    targets: Sequence[float] | None,
    tokenizer: Tokenizer,
    max_length: int,
    truncation: str = "head",
) -> RaggedRows:
    """A table as rows of tokens, with `labels` `[N]`: int32 classes or float32 numbers.

    Without targets, labels are 0 and the column `scored` is False.
    """
    ids, types = [], []
    for start in range(0, len(table), CHUNK):
        part = slice(start, start + CHUNK)
        pairs = table.pairs and table.pairs[part]
        batch = tokenizer(
            table.texts[part], pairs, max_length=max_length, truncation=truncation
        )
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
class ClassificationTask(fine_tuning.FineTuningTask[RaggedRows]):
    """Classification with its rows; regression has no `labels`.

    Attributes:
      first: the first held-out text and its pair.
      glue: the format of written predictions.
      truncation: the tokens of a long text that stay.
    """

    first: tuple[str, str | None]
    glue: Glue
    truncation: str = "head"

    head = heads.SequenceClassifier
    output = "classifier"

    def totals(self, model: nn.Module, batch: Batch, logits: jax.Array) -> Totals:
        """See `classification_totals`."""
        return classification_totals(model, batch, logits)

    def to_model(self, module: nn.Module, params: Params) -> Model:
        """The finished model; its config.json has the truncation."""
        model = super().to_model(module, params)
        if self.truncation == "head":
            return model
        extra = {**model.extra, TRUNCATION: self.truncation}
        return dataclasses.replace(model, extra=extra)

    def score(self, split: str, predictions: Mapping[str, Any]) -> dict[str, float]:
        """The scores of the task over all rows; {} without labels."""
        columns = self.rows[split].columns
        if not columns["scored"].all():
            return {}
        labels, values = columns["labels"], self.decode(predictions)
        return {name: float(METRICS[name](labels, values)) for name in self.metrics}

    def constant_score(self, split: str) -> float:
        """The score of always the same class, the best one; 0 for numbers."""
        labels, metric = self.rows[split].columns["labels"], METRICS[self.best_metric]
        constants = [np.full_like(labels, c) for c in range(len(self.labels))]
        scores = np.nan_to_num([metric(labels, values) for values in constants])
        return float(np.max(scores, initial=0.0))

    def decode(self, predictions: Mapping[str, Any]) -> np.ndarray:
        """Predicted classes or numbers `[N]`."""
        logits = predictions["logits"]
        return logits.argmax(1) if self.labels else logits[:, 0]

    def write_predictions(
        self, workdir: Path, split: str, predictions: Mapping[str, Any]
    ) -> None:
        """Writes predictions/<split>.tsv in the format of gluebenchmark.com.

        Labels, if there are any, are a third column. For "eval" confusion.png shows
        them against the predictions.
        """
        source, values = self.rows[split], self.decode(predictions)
        labels = source.columns["labels"] if source.columns["scored"].all() else None
        if split == "eval" and self.labels and labels is not None:
            plots.confusion(labels, values, self.labels, workdir / "confusion.png")
        columns = {"index": range(len(values)), "prediction": self._format(values)}
        if labels is not None:
            columns["label"] = self._format(labels)
        rows = [columns, *zip(*columns.values(), strict=True)]
        file = workdir / f"predictions/{self.glue.files.get(split, split)}.tsv"
        files.make_directory(file.parent)
        lines = ("\t".join(map(str, row)) + "\n" for row in rows)
        files.write_text(file, "".join(lines))

    def _format(self, values: np.ndarray) -> list[str]:
        if self.labels:
            return [self.labels[i] for i in values]
        return [f"{x:.3f}" for x in np.clip(values, *self.glue.between)]

    def demo(self, model: Model, workdir: Path) -> str:
        """The first held-out text with its classes."""
        text, pair = self.first
        # One text has one prediction.
        prediction = cast(Prediction, model.classify(self._first))
        title = f"held out: {text!r}" + (f", {pair!r}" if pair is not None else "")
        return "\n".join(["", title, *described(prediction)])

    def next_steps(self, workdir: Path, shell: bool) -> str:
        """The model's directory and a call to try."""
        text, pair = self.first
        record = None if pair is None else {"text": text, "pair": pair}
        call = Call("classify", (self._first,), text, record)
        return next_steps(workdir, call, shell)

    @property
    def _first(self) -> Text:
        text, pair = self.first
        return text if pair is None else (text, pair)


def described(prediction: Prediction) -> list[str]:
    """A prediction as lines for a person: the likeliest labels, or the number."""
    if isinstance(prediction, float):
        return [f"  {prediction:.3f}"]
    best = prediction[:SHOWN_LABELS]
    return [f"  {label.probability:4.0%}  {label.name}" for label in best]


def classification_totals(model: nn.Module, batch: Batch, logits: jax.Array) -> Totals:
    """Sums and counts: loss, for classes accuracy, tokens and flops.

    The loss is cross-entropy, or for one output (regression) the squared error, on the
    labels as they are.

    Args:
      batch: `labels` `[B]`, `attention_mask` `[B, L]`, and `valid` bool `[B]` where
        some rows only fill it.
      logits: `[B, C]`.

    >>> batch = {"labels": jnp.array([1, 0]), "attention_mask": jnp.ones((2, 7), int)}
    >>> logits = jnp.array([[0.0, 9.0], [0.0, 9.0]])
    >>> totals = classification_totals(classifier.head, batch, logits)
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
class ClassificationConfig(FineTuningConfig[Table]):
    """One label for each text or pair of texts, as a recipe describes it.

    Attributes:
      name: one of GLUE's tasks, which sets labels and metrics; None for other files.
      train, dev: .tsv, .csv or .jsonl files; `dev` is what is evaluated on, or the
        share of `train`, such as 0.1, that is held out for it, the same rows for every
        seed. With a `name` and none of them, those of TFDS.
      text, pair, label: columns, by name or position from 0; None finds them.
      labels: names of the classes by number; none takes those of `train`.
      regression: True predicts numbers, False classes; None predicts numbers where
        labels are numbers and not all whole.
      metrics: names of scores; the first chooses the best checkpoint. None given: the
        task's, or else accuracy, for regression Pearson's and Spearman's correlation.
      pooling: the vector of a row that the last layer reads: "mean", "cls", "max", …,
        several joined by +, or "pooler", the dense layer on [CLS] that the family of
        the model publishes. None takes the pooling that the model declares, as those of
        sentence-transformers do, or else "pooler".
      truncation: the tokens of a long text that are read, by training and by the model:
        the first ones, "head", the last ones, "tail", or both, "head_tail", a quarter
        from its beginning and the rest from its end (Sun et al., 2019, section 5.3).

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
    pooling: str | None = None
    truncation: str = "head"

    def resolve(self, config: Run) -> Run:
        """The shared defaults; a GLUE task without files uses those of TFDS."""
        if self.name not in GLUE or self.train or self.dev:
            return super().resolve(config)
        train, dev, test = self._glue.tfds
        files = [f"tfds:glue/{self.name}:{split}" for split in (train, dev, *test)]
        task = dataclasses.replace(self, train=files[0], dev=files[1])
        task.test = self.test or tuple(files[2:])
        return super(ClassificationConfig, task).resolve(config)

    def read(
        self, path: str, like: Table | None = None, labelled: bool = True
    ) -> Table:
        """The rows of a file."""
        columns = Columns(self.text, self.pair, self.label, self._glue.by_width)
        return tables.read(path, like.columns if like else columns, labelled)

    def hold_out(self, content: Table, share: float) -> tuple[Table, Table]:
        """The rows to train on and those held out, of each class its share."""
        return tables.hold_out(content, share, self.regression)

    def check(self) -> None:
        """Raises ValueError for a field that cannot be right."""
        super().check()
        check_pooling(self.pooling)
        if self.truncation not in TRUNCATIONS:
            raise ValueError(
                f"task.truncation={self.truncation!r} is unknown; choose one of "
                f"{', '.join(TRUNCATIONS)}"
            )
        if self.name is not None and self.name not in GLUE:
            raise ValueError(
                f"task.name={self.name!r} is not one of GLUE's {', '.join(GLUE)}; "
                "leave it out for other files"
            )
        for name in self.metrics:
            if name not in METRICS:
                raise ValueError(
                    f"task.metrics has {name!r}; choose from {', '.join(METRICS)}"
                )

    def prepare(
        self, workdir: Path, encoder: EncoderConfig, seed: int
    ) -> ClassificationTask:
        """Reads all files, checks and tokenizes them."""
        content = self.content
        train, dev = content["train"], content["eval"]
        labels = self.class_names(train)
        targets = {split: _targets(x, labels) for split, x in content.items()}
        start, tokenizer = self._with_vocabulary(workdir, encoder, train).start(encoder)
        _describe(content, labels)
        return ClassificationTask(
            rows={
                split: rows_of(
                    table, targets[split], tokenizer, self.max_length, self.truncation
                )
                for split, table in content.items()
            },
            labels=labels,
            metrics=self._metrics(labels),
            tokenizer=tokenizer,
            max_length=self.max_length,
            start=start,
            content=content,
            pooling=row_pooling(self.pooling, start, ClassificationTask.head),
            first=(dev.texts[0], dev.pairs[0] if dev.pairs else None),
            glue=self._glue,
            truncation=self.truncation,
            teacher=self.loaded_teacher,
        )

    def _with_vocabulary(
        self, workdir: Path, encoder: EncoderConfig, train: Table
    ) -> "ClassificationConfig":
        """This config; without a tokenizer, with a vocabulary trained on `train`."""
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
        names = tables.class_names(train, self.regression)
        if len(names) == 1:
            raise ValueError(
                f"{train.path} has no label but {names[0]!r}; add rows of others"
            )
        return names

    def _metrics(self, labels: Sequence[str]) -> tuple[str, ...]:
        usual = ("accuracy",) if labels else ("pearson", "spearman")
        return self.metrics or self._glue.metrics or usual


def _targets(table: Table, labels: Sequence[str]) -> Sequence[float] | None:
    if table.labels is None:
        return None
    return tables.classes(table, labels) if labels else tables.numbers(table)


def _describe(content: Mapping[str, Table], labels: Sequence[str]) -> None:
    """Prints the size of the data; warns of held-out rows that are in `train`, too."""
    train, dev = content["train"], content["eval"]
    same = tables.overlap(train, dev)
    rows = f"{counted(len(dev), 'row')} of {dev.path}"
    fine_tuning.warn_of_overlap(same, rows, train.path)
    names = f"{counted(len(labels), 'label')} ({', '.join(labels[:10])})"
    kind = names if labels else "numbers"
    print(f"{counted(len(train), 'row')} to train on, {len(dev):,} held out, {kind}")
