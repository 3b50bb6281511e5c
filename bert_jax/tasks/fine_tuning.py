"""What all fine-tuning has in common: how long it lasts, and what it starts from."""

import dataclasses
import functools
import hashlib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from bert_jax import pretrained, tokenizers
from bert_jax.data import labelled_files
from bert_jax.data.labelled_files import by_split
from bert_jax.data.ragged import RaggedRows
from bert_jax.inference.model import Model
from bert_jax.objectives.losses import Totals
from bert_jax.pretrained import Checkpoint
from bert_jax.pretrained.families import FAMILIES
from bert_jax.tasks.teaching import Teacher, computed_in, digest
from bert_jax.tokenizers import Tokenizer
from bert_jax.tokenizers.vocabulary import refuse_more_ids


@dataclasses.dataclass
class FineTuningConfig:
    """The fields that every such task's config has.

    Attributes:
      train, dev: files to train on, and to evaluate on; `tfds:NAME:SPLIT` is a dataset
        of TFDS.
      test: files to predict when the run is over, and to score if they have labels.
      tokenizer: vocab.txt or a directory; None takes that of `init_from`.
      max_length: of a row in tokens.
      epochs: passes over `train`; they say `num_steps`, `warmup_steps` (`warmup` of
        all steps), `eval_every` and `checkpoint_every`. 0 leaves these as they are.
      teacher: a model that was fine-tuned on the same labels, of the same vocabulary;
        what it predicts is learnt as well (Sanh et al., 2019, section 3).
      alpha_ce, temperature: the weight of its predictions, of which labels have the
        rest, and the temperature at which they are compared; numbers have none.
      init_from: the run's, which fills it in.
    """

    train: str | None = None
    dev: str | None = None
    test: tuple[str, ...] = ()
    tokenizer: str | None = None
    max_length: int = 128
    epochs: float = 3.0
    warmup: float = 0.1
    teacher: str | None = None
    alpha_ce: float = 0.5
    temperature: float = 2.0
    init_from: str | None = None

    # What `train` and `dev` may be, for the error where they are missing.
    files: ClassVar[str] = "a .tsv, .csv or .jsonl file"

    def count(self) -> int:
        """How many examples `train` has; an epoch sees so many."""
        raise NotImplementedError

    def complete(self, config: Any) -> Any:
        """The run's config with what follows from its start and from the data."""
        self.check()
        task = dataclasses.replace(
            self,
            init_from=config.init_from,
            train=labelled_files.local(self.train),
            dev=labelled_files.local(self.dev),
            test=tuple(map(labelled_files.local, self.test)),
        )
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
        # `validate` refuses a batch without rows.
        steps = int(task.count() * self.epochs / max(1, config.batch_size))
        # Rounded up, for the last epoch's evaluation is that of the last step.
        every = max(1, math.ceil(steps / self.epochs))
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

    def check(self) -> None:
        """Raises ValueError for a field that cannot be right."""
        for field in ("train", "dev"):
            if not getattr(self, field):
                raise ValueError(f"task.{field} names no file; give {self.files}")
        if not 0 <= self.epochs < 1e9 or not 0 <= self.warmup < 1:
            raise ValueError(
                f"task.epochs={self.epochs} must be at least 0, and "
                f"task.warmup={self.warmup} a share below 1; change them"
            )
        if not 0 <= self.alpha_ce <= 1 or not 0 < self.temperature < math.inf:
            raise ValueError(
                f"task.alpha_ce={self.alpha_ce} must be a share, and "
                f"task.temperature={self.temperature} positive; 0.5 and 2 are usual"
            )

    def validate(self, encoder: Any) -> None:
        """Raises ValueError for what can be seen to be wrong before any work."""
        self.check()
        if not 3 < self.max_length <= encoder.max_length:
            raise ValueError(
                f"task.max_length={self.max_length} is not between 4 and the "
                f"{encoder.max_length} positions of the encoder; change it"
            )

    def start(self, encoder: Any) -> tuple[Checkpoint | None, Tokenizer]:
        """What the run starts from, if anything, and the tokenizer."""
        start = pretrained.load(self.init_from) if self.init_from else None
        tokenizer = self.vocabulary(start)
        refuse_more_ids(tokenizer.vocab_size, encoder.vocab_size)
        return start, tokenizer

    def vocabulary(self, start: Checkpoint | None) -> Tokenizer:
        """The tokenizer: the task's own, or that of the start."""
        if self.tokenizer:
            return tokenizers.load(self.tokenizer)
        if start is None or start.tokenizer is None:
            raise ValueError(
                f"init_from={self.init_from!r} gives no tokenizer; name one with "
                "task.tokenizer"
            )
        return start.tokenizer

    @property
    def lesson(self) -> Teacher | None:
        """What there is to learn from another model, if one is named."""
        if not self.teacher:
            return None
        return Teacher(self.teacher, self.alpha_ce, self.temperature)

    def splits(self) -> dict[str, str]:
        """Files by split: "train", "eval", and `test` by the names of its files."""
        return by_split(self.train, self.dev, self.test, "task.test")


INPUTS = ("input_ids", "attention_mask", "token_type_ids")


@dataclasses.dataclass(frozen=True)
class FineTuningTask:
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
    lesson: Teacher | None = dataclasses.field(default=None, kw_only=True)

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
