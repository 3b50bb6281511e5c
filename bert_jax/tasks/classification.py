"""Fine-tuning on labelled texts and pairs: classes, or numbers (regression)."""

import dataclasses
import warnings
from pathlib import Path
from typing import Any

from bert_jax import pretrained, tokenizers
from bert_jax.data import tables
from bert_jax.data.columns import Columns
from bert_jax.data.tables import Table
from bert_jax.tasks.classification_run import METRICS, Prepared, rows_of
from bert_jax.tasks.glue import GLUE, Glue


@dataclasses.dataclass
class Classification:
    """One label for each text or pair of texts, as a config says it.

    Attributes:
      name: one of GLUE's tasks, which says labels and metrics; None for any file.
      train, dev: .tsv, .csv or .jsonl files; `dev` is what is evaluated on.
      text, pair, label: columns, by name or position from 0; None finds them.
      labels: names of the classes by number; none takes those of `train`.
      regression: whether labels are numbers to predict; None: where they are numbers
        and not all whole.
      metrics: names of scores; the first chooses the best checkpoint. None given: the
        task's, or else accuracy, for regression Pearson's and Spearman's correlation.
      tokenizer: vocab.txt or a directory; None takes that of `init_from`.
      max_length: of a row in tokens; what is longer is cut.
      epochs: passes over `train`; they say `num_steps`, `warmup_steps` (`warmup` of
        all steps), `eval_every` and `checkpoint_every`. 0 leaves these as they are.
      init_from: the run's, which fills it in.
    """

    name: str | None = None
    train: str | None = None
    dev: str | None = None
    text: str | None = None
    pair: str | None = None
    label: str | None = None
    labels: tuple[str, ...] = ()
    regression: bool | None = None
    metrics: tuple[str, ...] = ()
    tokenizer: str | None = None
    max_length: int = 128
    epochs: float = 3.0
    warmup: float = 0.1
    init_from: str | None = None

    def complete(self, config: Any) -> Any:
        """The run's config with what follows from its start and from the data."""
        self._check_fields()
        task = dataclasses.replace(self, init_from=config.init_from)
        config = dataclasses.replace(config, task=task)
        if config.encoder is None:
            if not config.init_from:
                raise ValueError(
                    "there is neither init_from nor encoder; name a model to start "
                    "from with --config.init_from=DIR"
                )
            encoder = pretrained.load(config.init_from).head.encoder.config
            config = dataclasses.replace(config, encoder=encoder)
        if not self.epochs:
            return config
        steps = int(len(self._read()) * self.epochs / config.batch_size)
        every = max(1, int(steps / self.epochs))
        optimizer = dataclasses.replace(
            config.optimizer, warmup_steps=int(steps * self.warmup)
        )
        return dataclasses.replace(
            config,
            num_steps=max(1, steps),
            optimizer=optimizer,
            eval_every=every,
            checkpoint_every=every,
        )

    def _check_fields(self) -> None:
        for field in ("train", "dev"):
            if not getattr(self, field):
                raise ValueError(
                    f"task.{field} names no file; give a .tsv, .csv or .jsonl file"
                )
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
        if self.epochs < 0 or not 0 <= self.warmup < 1:
            raise ValueError(
                f"task.epochs={self.epochs} must be at least 0 and "
                f"task.warmup={self.warmup} a share below 1; change them"
            )

    def validate(self, encoder: Any) -> None:
        """Raises ValueError for what can be seen to be wrong before any work."""
        self._check_fields()
        if not 3 < self.max_length <= encoder.longest:
            raise ValueError(
                f"task.max_length={self.max_length} is not between 4 and the "
                f"{encoder.longest} positions of the encoder; change it"
            )

    def prepare(self, workdir: Path, encoder: Any, seed: int) -> Prepared:
        """Both files read, checked and cut into tokens."""
        train = self._read()
        dev = tables.read(self.dev, train.columns)
        labels = self.class_names(train)
        start = pretrained.load(self.init_from) if self.init_from else None
        tokenizer = self._tokenizer(start)
        if tokenizer.vocab_size > encoder.vocab_size:
            raise ValueError(
                f"the tokenizer has {tokenizer.vocab_size} ids but encoder.vocab_size="
                f"{encoder.vocab_size}; set it to at least that many"
            )
        same = tables.overlap(train, dev)
        if same:
            warnings.warn(
                f"{same} of the {len(dev)} rows of {dev.path} stand in {train.path} "
                "too, so scores on them are too good",
                stacklevel=2,
            )
        said = (
            f"{len(labels)} labels ({', '.join(labels[:10])})" if labels else "numbers"
        )
        print(f"{len(train):,} rows to train on, {len(dev):,} held out, {said}")
        targets = {"train": train, "eval": dev}
        return Prepared(
            {
                split: rows_of(
                    table, _targets(table, labels), tokenizer, self.max_length
                )
                for split, table in targets.items()
            },
            labels=labels,
            metrics=self._metrics(labels),
            tokenizer=tokenizer,
            max_length=self.max_length,
            start=start,
            files=(train.path, dev.path),
            first=(dev.texts[0], dev.pairs and dev.pairs[0]),
        )

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
        found = sorted(set(train.labels), key=_by_number)
        whole = all(label.lstrip("+-").isdigit() for label in found)
        regression = self.regression
        if regression is None:
            regression = all(map(tables.is_number, found)) and not whole
        if not regression and len(found) < 2:
            raise ValueError(
                f"{train.path} has no label but {found[0]!r}; add rows of others"
            )
        return () if regression else tuple(found)

    def _metrics(self, labels):
        usual = ("accuracy",) if labels else ("pearson", "spearman")
        return self.metrics or self._glue.metrics or usual

    def _tokenizer(self, start):
        if self.tokenizer:
            return tokenizers.load(self.tokenizer)
        if start is None or start.tokenizer is None:
            raise ValueError(
                f"init_from={self.init_from!r} gives no tokenizer; name one with "
                "task.tokenizer"
            )
        return start.tokenizer


def _targets(table, labels):
    return tables.classes(table, labels) if labels else tables.numbers(table)


def _by_number(label):
    return (float(label), label) if tables.is_number(label) else (float("inf"), label)
