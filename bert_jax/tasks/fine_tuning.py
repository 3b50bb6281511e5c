"""The base of fine-tuning tasks: files, epochs, starting point, teacher, saving."""

import abc
import dataclasses
import functools
import hashlib
import math
import warnings
from collections.abc import Mapping, Sized
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from bert_jax import metrics, pretrained, tokenizers
from bert_jax.data import tfds_files
from bert_jax.data.labelled_files import files_by_split
from bert_jax.data.ragged import RaggedRows
from bert_jax.data.tables import is_number
from bert_jax.inference.model import Model
from bert_jax.models.config import EncoderConfig
from bert_jax.models.pooling import MODES
from bert_jax.objectives.losses import Batch, Params, Totals
from bert_jax.pretrained import Checkpoint, config_json
from bert_jax.pretrained.families import family_of
from bert_jax.tasks.run_config import Run, log_every
from bert_jax.tasks.teacher import Teacher, params_digest, with_dtype
from bert_jax.tokenizers import Tokenizer
from bert_jax.tokenizers.vocabulary import check_vocab_size

# The type of the content of a task's files.
Content = TypeVar("Content", bound=Sized)


@dataclasses.dataclass
class FineTuningConfig(abc.ABC, Generic[Content]):
    """The fields of every fine-tuning task.

    Attributes:
      train, dev: files to train on, and to evaluate on; `tfds:NAME:SPLIT` is a dataset
        of TFDS. A number below 1 as `dev`, where the task can divide its file, holds
        that share of `train` out.
      test: files to predict after training, and to score if they have labels.
      tokenizer: vocab.txt or a directory; None: that of `init_from`.
      max_length: of a row in tokens.
      epochs: passes over `train`, which determine `num_steps` and the largest
        `log_every`; 0 leaves both. `warmup_steps`, `eval_every` and `checkpoint_every`
        follow where they are 0.
      warmup: the share of the steps in which the learning rate rises.
      teacher: a model that was fine-tuned on the same labels, with the same vocabulary;
        its predictions are learnt, too (Sanh et al., 2019, section 3).
      alpha_ce, temperature: the weight of its predictions, while labels have the rest,
        and the temperature at which they are compared; numbers have no temperature.
      init_from: set by the run.

    >>> dataclasses.replace(config.task, train="train.tsv", dev="dev.tsv").splits()
    {'train': 'train.tsv', 'eval': 'dev.tsv'}
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

    # Kinds of files, for the error if `train` or `dev` is missing.
    files: ClassVar[str] = "a .tsv, .csv or .jsonl file"

    @abc.abstractmethod
    def read(
        self, path: str, like: Content | None = None, labelled: bool = True
    ) -> Content:
        """The content of a file, checked.

        Args:
          path: of the file.
          like: the content of `train`, whose columns are used; None for `train`
            itself.
          labelled: False for a file to predict.
        """

    def count(self) -> int:
        """The number of examples in `train`; an epoch sees each once."""
        return len(self.train_content)

    @functools.cached_property
    def train_content(self) -> Content:
        """The content of `train`, without what is held out of it."""
        return self._divided[0]

    @functools.cached_property
    def _divided(self) -> tuple[Content, Content | None]:
        """The content of `train`, read once, and what `dev` holds out of it, if so."""
        content = self.read(self.check_file("train"))
        share = self.held_out_share
        return (content, None) if share is None else self.hold_out(content, share)

    @property
    def held_out_share(self) -> float | None:
        """The share of `train` that `dev` is; None where it is a file."""
        return float(self.dev) if self.dev and is_number(self.dev) else None

    def hold_out(self, content: Content, share: float) -> tuple[Content, Content]:
        """The content of `train` to train on, and what is held out."""
        raise ValueError(
            f"task.dev={self.dev} is a share, and this task does not divide "
            f"{self.train}; give {self.files}"
        )

    @functools.cached_property
    def content(self) -> dict[str, Content]:
        """The content of all files by split; each is read once."""
        train, files = self.train_content, self.splits()
        others = {split: path for split, path in files.items() if split != "train"}
        held_out = {} if self._divided[1] is None else {"eval": self._divided[1]}
        return {"train": train, **held_out} | {
            split: self.read(path, train, labelled=split == "eval")
            for split, path in others.items()
            if split not in held_out
        }

    @functools.cached_property
    def checkpoint(self) -> Checkpoint | None:
        """The model that the run starts from, if any, loaded once."""
        return pretrained.load(self.init_from) if self.init_from else None

    def resolve(self, config: Run) -> Run:
        """The run's config with the fields that follow from its start and its data.

        A config that is already resolved keeps its task, with the checkpoint and the
        files that the task has loaded.
        """
        self.check()
        fields: dict[str, Any] = {
            "init_from": config.init_from,
            "train": tfds_files.local_file(self.check_file("train")),
            "dev": tfds_files.local_file(self.check_file("dev")),
            "test": tuple(map(tfds_files.local_file, self.test)),
        }
        task = self
        if any(getattr(self, name) != value for name, value in fields.items()):
            task = dataclasses.replace(self, **fields)
        config = dataclasses.replace(
            config, task=task, keep_checkpoints=bool(config.keep_checkpoints)
        )
        if config.encoder is None:
            if task.checkpoint is None:
                raise ValueError(
                    "there is neither init_from nor encoder; name a model to start "
                    "from with init_from='DIR'"
                )
            encoder = task.checkpoint.head.encoder.config
            config = dataclasses.replace(config, encoder=encoder)
        task.validate(config.encoder)
        if not self.epochs:
            return config
        # A batch without rows is refused with the run's other fields.
        steps = int(task.count() * self.epochs / max(1, config.batch_size))
        # Rounded up, because the last step is evaluated anyway.
        every = max(1, math.ceil(steps / self.epochs))
        warmup = config.optimizer.warmup_steps or int(steps * self.warmup)
        return dataclasses.replace(
            config,
            num_steps=max(1, steps),
            optimizer=dataclasses.replace(config.optimizer, warmup_steps=warmup),
            log_every=log_every(config.log_every, steps),
            eval_every=config.eval_every or every,
            checkpoint_every=config.checkpoint_every or every,
        )

    def check(self) -> None:
        """Raises ValueError for a field that cannot be right."""
        for field in ("train", "dev"):
            self.check_file(field)
        if (share := self.held_out_share) is not None and not 0 < share < 1:
            raise ValueError(
                f"task.dev={self.dev} is no share of task.train between 0 and 1; "
                f"change it, or give {self.files}"
            )
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

    def check_file(self, field: str) -> str:
        """The file that `train` or `dev` names. Raises ValueError if there is none."""
        path = getattr(self, field)
        if not path:
            raise ValueError(f"task.{field} names no file; give {self.files}")
        return path

    def validate(self, encoder: EncoderConfig) -> None:
        """Raises ValueError for a field that cannot be right with this encoder."""
        self.check()
        if not 3 < self.max_length <= encoder.max_length:
            raise ValueError(
                f"task.max_length={self.max_length} is not between 4 and the "
                f"{encoder.max_length} positions of the encoder; change it"
            )

    def start(self, encoder: EncoderConfig) -> tuple[Checkpoint | None, Tokenizer]:
        """The checkpoint that the run starts from, if any, and the tokenizer."""
        tokenizer = self.load_tokenizer()
        check_vocab_size(tokenizer.vocab_size, encoder.vocab_size)
        return self.checkpoint, tokenizer

    def load_tokenizer(self) -> Tokenizer:
        """The tokenizer: the task's own, or that of the start."""
        if self.tokenizer:
            return tokenizers.load(self.tokenizer)
        start = self.checkpoint
        if start is None or start.tokenizer is None:
            raise ValueError(
                f"init_from={self.init_from!r} gives no tokenizer; name one with "
                "task.tokenizer"
            )
        return start.tokenizer

    @functools.cached_property
    def loaded_teacher(self) -> Teacher | None:
        """The teacher, if the task has one; loaded once for all seeds."""
        if not self.teacher:
            return None
        return Teacher(self.teacher, self.alpha_ce, self.temperature)

    def splits(self) -> dict[str, str]:
        """Files by split: "train", "eval", and `test` by the names of its files."""
        train, dev = self.check_file("train"), self.check_file("dev")
        return files_by_split(train, dev, self.test, "task.test")


# The type of a task's rows.
Rows = TypeVar("Rows", bound=RaggedRows)

INPUTS = ("input_ids", "attention_mask", "token_type_ids")


@dataclasses.dataclass(frozen=True)
class FineTuningTask(abc.ABC, Generic[Rows]):
    """A fine-tuning task with its rows.

    Attributes:
      rows: by split: "train", "eval", and those to predict after training.
      labels: names of the classes, if there are any.
      metrics: names of scores; the first decides which checkpoint is best.
      tokenizer, max_length: of the finished model.
      start: the checkpoint that parameters come from.
      content: the content of the files by split; other content is another run.
      teacher: another model to learn from.
      pooling: of the vectors that the last layer reads, see `row_pooling`.

    Raises ValueError for a teacher of another kind.

    >>> task = dataclasses.replace(config.task, init_from="start")
    >>> task = task.prepare(Path("run"), encoder.config, 0)
    >>> sorted(task.rows), task.best_metric
    (['eval', 'train'], 'accuracy')
    """

    rows: Mapping[str, Rows]
    labels: tuple[str, ...]
    metrics: tuple[str, ...]
    tokenizer: Tokenizer
    max_length: int
    start: Checkpoint | None
    content: Mapping[str, Any]
    teacher: Teacher | None = dataclasses.field(default=None, kw_only=True)
    pooling: str | None = dataclasses.field(default=None, kw_only=True)

    # The class of the head, and the name of its layer that depends on the labels.
    head: ClassVar[type[nn.Module]]
    output: ClassVar[str]

    def __post_init__(self):
        if self.teacher:
            self.teacher.check_task(self)

    @property
    def constants(self) -> Params:
        """The parameters of the teacher, if there is one."""
        return {"teacher": self.teacher.model.params} if self.teacher else {}

    @property
    def loss_weights(self) -> dict[str, float]:
        """The terms of the objective and their weights."""
        return self.teacher.loss_weights if self.teacher else {"loss": 1.0}

    @property
    def best_metric(self) -> str:
        """The score that decides which checkpoint is best."""
        return self.metrics[0]

    @functools.cached_property
    def fingerprint(self) -> dict[str, Any]:
        """Digests of data, tokenizer and teacher."""
        digests = {
            split: hashlib.sha256(repr(content).encode()).hexdigest()[:16]
            for split, content in self.content.items()
        }
        data = {"files": digests, "labels": list(self.labels)}
        return {
            "data": data | ({"pooling": self.pooling} if self.pooling else {}),
            "tokenizer": self.tokenizer.fingerprint,
        } | ({"teacher": params_digest(self.constants)} if self.teacher else {})

    @property
    def example_batch(self) -> dict[str, np.ndarray]:
        """The smallest inputs that initialise the model."""
        return {"input_ids": np.zeros((1, 2), np.int32)}

    @property
    def fields(self) -> dict[str, Any]:
        """Fields of the head."""
        return {"num_labels": max(1, len(self.labels))}

    def build(self, encoder: nn.Module) -> nn.Module:
        """The head on `encoder`."""
        fields = dict(self.fields)
        if self.pooling:
            fields |= {"pooling": self.pooling, "hidden_act": None}
        return pretrained.new_head(self.head, encoder, self.start, **fields)

    def check_start(self) -> Checkpoint:
        """The checkpoint of the start. Raises ValueError if there is none."""
        if self.start is None:
            raise ValueError("the task has no checkpoint to start from; set init_from")
        return self.start

    def pretrained_params(self, init_from: str) -> dict[str, Any]:
        """Parameters of the encoder, and those of the head that fit."""
        start = self.check_start()
        family = family_of(start.head.encoder.config)
        ours = family.heads[family.architecture(self.head)].names
        theirs = family.heads[family.architecture(type(start.head))].names
        fields = {k: getattr(start.head, k, None) for k in self.fields}
        alike = fields == self.fields and start.labels == self.labels
        alike &= row_pooling(None, start, self.head) == self.pooling
        params = {"encoder": start.params["encoder"]}
        for name, published in ours.items():
            if name == self.output and not (
                isinstance(start.head, self.head) and alike
            ):
                continue
            if self.pooling and name != self.output:
                continue
            # What is published under one name is one layer, whatever it is here: that
            # before a ModernBERT's masked LM is the one before its classifier, too.
            same = [path for path in theirs if theirs[path] == published]
            taken = parameters_at(start.params, same[0]) if same else None
            params |= {name: taken} if taken is not None else {}
        return params

    def loss(
        self, model: nn.Module, params: Params, batch: Batch, key: jax.Array | None
    ) -> tuple[Totals, dict[str, jax.Array]]:
        """The task's totals, in training with a teacher also `ce_loss`; predictions."""
        logits = self.logits(model, params, batch, key)
        totals = self.totals(model, batch, logits)
        if self.teacher and key is not None:
            dtype = model.encoder.config.dtype
            teacher = with_dtype(self.teacher.model.head, dtype)
            teacher_logits = self.logits(teacher, params["teacher"], batch, None)
            student, weights = self.comparable(logits, batch)
            target, _ = self.comparable(teacher_logits, batch)
            totals["ce_loss"] = self.teacher.teacher_loss(student, target, weights)
        return totals, self.predictions(logits)

    def totals(self, model: nn.Module, batch: Batch, logits: jax.Array) -> Totals:
        """Sums and counts of the head's output: loss, scores, tokens and flops.

        A task without logits overrides `loss`, which reads these.
        """
        raise NotImplementedError

    def predictions(self, logits: jax.Array) -> dict[str, jax.Array]:
        """The outputs that scores and written predictions need."""
        return {"logits": logits}

    def logits(
        self, model: nn.Module, params: Params, batch: Batch, key: jax.Array | None
    ) -> jax.Array:
        """The head's output, with dropout from `key` unless it is None."""
        inputs: dict[str, Any] = {name: batch[name] for name in INPUTS}
        logits: Any = model.apply(
            {"params": params},
            **inputs,
            deterministic=key is None,
            rngs=None if key is None else {"dropout": key},
        )
        return logits

    def comparable(
        self, logits: jax.Array, batch: Batch
    ) -> tuple[jax.Array, jax.Array]:
        """Logits `[..., C]` to compare with a teacher's, and weights `[...]`."""
        return logits, jnp.ones(len(logits))

    def report(
        self, split: str, totals: Mapping[str, Any], predictions: Mapping[str, Any]
    ) -> dict[str, float]:
        """Averages, and in evaluation scores; {} for rows without labels.

        Beside the `best_metric` is that of the best constant answer.
        """
        averages = self.averages(totals)
        if split == "train":
            return averages
        scores = self.score(split, predictions)
        if scores:
            baseline = metrics.baseline_name(self.best_metric)
            scores |= {baseline: self.constant_score(split)}
        return {**averages, **scores} if scores or split == "eval" else {}

    def constant_score(self, split: str) -> float:
        """The `best_metric` of the best constant answer for a split with labels."""
        return 0.0

    @abc.abstractmethod
    def score(self, split: str, predictions: Mapping[str, Any]) -> dict[str, float]:
        """Scores of the predictions for a split; {} without labels."""

    def averages(self, totals: Mapping[str, Any]) -> dict[str, float]:
        """Averages by name."""
        names = ("loss", "ce_loss", "accuracy")
        named = {k: totals[k] for k in names if k in totals}
        return {k: float(s) / max(float(n), 1e-9) for k, (s, n) in named.items()}

    def to_models(
        self, module: nn.Module, params: Params, history: Mapping[str, Any]
    ) -> dict[str, Model]:
        """The finished model, saved to model/."""
        model = dataclasses.replace(self.to_model(module, params), history=history)
        return {"model": model}

    def to_model(self, module: nn.Module, params: Params) -> Model:
        """The finished model."""
        model = Model.of(module, params, self.tokenizer, self.labels)
        if self.start:
            settings = config_json.settings_of(self.start)
            model = pretrained.keep_settings(model, settings)
        return dataclasses.replace(model, max_length=self.max_length)

    def write_predictions(
        self, workdir: Path, split: str, predictions: Mapping[str, Any]
    ) -> None:
        """Writes nothing; tasks with a file format for predictions override this."""

    def demo(self, model: Model, workdir: Path) -> str:
        """Text that shows the finished model at work; "" for none."""
        return ""

    def next_steps(self, workdir: Path, shell: bool) -> str:
        """Text that names the model's directory and a call to try."""
        return f"the model is in {workdir}/model"


def warn_of_overlap(same: int, rows: str, train: str) -> None:
    """Warns, at the call that trains, of held-out rows that are in `train` too.

    `rows` is their number and their file, as `9 rows of dev.tsv`.
    """
    if same:
        warnings.warn(
            f"{same} of the {rows} are also in {train}, so scores on them are too good",
            stacklevel=4,
        )


# The head as the family of the encoder publishes it.
POOLER = "pooler"


def row_pooling(
    wanted: str | None, start: Checkpoint | None, head: type[nn.Module]
) -> str | None:
    """The pooling that the last layer of a classifier reads; None for a family's head.

    A classifier keeps its own. Other models that declare a pooling were trained for its
    vectors, and not for the dense layer on [CLS] that their family has.

    Args:
      wanted: the task's setting: modes of pooling joined by +, or `POOLER`; None takes
        what the model declares.
      start: the model to start from.
      head: the class of the head.
    """
    if wanted is not None or start is None:
        return None if wanted == POOLER else wanted
    if isinstance(start.head, head):
        return start.head.pooling if config_json.is_pooled(start.head) else None
    return "+".join(start.pooling.modes) if start.pooling else None


def check_pooling(wanted: str | None) -> None:
    """Raises ValueError for a pooling that there is not."""
    if wanted is not None and not set(wanted.split("+")) <= {*MODES, POOLER}:
        raise ValueError(
            f"task.pooling={wanted!r} is unknown; choose one of "
            f"{', '.join([POOLER, *MODES])}, or several joined by +"
        )


def parameters_at(params: Params, path: str) -> Any:
    """The parameters at a path such as `mlm/transform`; None if there are none."""
    branch: Any = params
    for part in path.split("/"):
        branch = branch.get(part) if branch else None
    return branch
