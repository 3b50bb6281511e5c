"""Fine-tuning on labelled texts and pairs: classes, or numbers (regression)."""

import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bert_jax import tokenizers
from bert_jax.data import check, tables
from bert_jax.data.columns import Columns
from bert_jax.data.tables import Table
from bert_jax.tasks.classification_run import METRICS, Prepared, rows_of
from bert_jax.tasks.finetuned import FineTuning
from bert_jax.tasks.glue import GLUE, Glue


@dataclasses.dataclass
class Classification(FineTuning):
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
    >>> Classification(train="texts.jsonl", dev="dev.tsv").count()
    1
    """

    name: str | None = None
    text: str | None = None
    pair: str | None = None
    label: str | None = None
    labels: tuple[str, ...] = ()
    regression: bool | None = None
    metrics: tuple[str, ...] = ()

    def complete(self, config: Any) -> Any:
        """See `FineTuning`; GLUE's files are those of TFDS where none are named."""
        if self.name not in GLUE or self.train or self.dev:
            return super().complete(config)
        train, dev, test = self._glue.tfds
        named = [f"tfds:glue/{self.name}:{split}" for split in (train, dev, *test)]
        task = dataclasses.replace(self, train=named[0], dev=named[1])
        task.test = self.test or tuple(named[2:])
        return super(Classification, task).complete(config)

    def count(self) -> int:
        """Rows of `train`."""
        return len(self._read())

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

    def prepare(self, workdir: Path, encoder: Any, seed: int) -> Prepared:
        """All files read, checked and cut into tokens."""
        train, files = self._read(), self.splits()
        found = {"train": train, "eval": tables.read(self.dev, train.columns)}
        for split in list(files)[len(found) :]:
            found[split] = tables.read(files[split], train.columns, labelled=False)
        labels = self.class_names(train)
        targets = {split: _targets(x, labels) for split, x in found.items()}
        start, tokenizer = self._with_vocabulary(workdir, encoder, train).start(encoder)
        _say(found, labels)
        dev = found["eval"]
        return Prepared(
            sources={
                split: rows_of(table, targets[split], tokenizer, self.max_length)
                for split, table in found.items()
            },
            labels=labels,
            metrics=self._metrics(labels),
            tokenizer=tokenizer,
            max_length=self.max_length,
            start=start,
            files=tuple(files.values()),
            first=(dev.texts[0], dev.pairs and dev.pairs[0]),
            glue=self._glue,
            lesson=self.lesson,
        )

    def _with_vocabulary(self, workdir, encoder, train) -> "Classification":
        """Names a WordPiece vocabulary of `train` where nothing gives a tokenizer."""
        if self.init_from or self.tokenizer:
            return self
        texts = [*train.texts, *(train.pairs or ())]
        directory = workdir / "data/tokenizer"
        tokenizers.WordPiece.train(texts, encoder.vocab_size).save(directory)
        return dataclasses.replace(self, tokenizer=str(directory))

    def _read(self) -> Table:
        columns = Columns(self.text, self.pair, self.label, self._glue.by_width)
        return tables.read(self.train, columns)

    @property
    def _glue(self) -> Glue:
        return GLUE[self.name] if self.name else Glue((), ())

    def class_names(self, train: Table) -> tuple[str, ...]:
        """Names of the classes; none for regression."""
        labels = self.labels or self._glue.labels
        if labels or self.name:
            return labels
        found = check.class_names(train, self.regression)
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
