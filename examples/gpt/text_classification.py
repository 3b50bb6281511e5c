"""Fine-tuning of a GPT on labelled texts as a task, and the classifier it makes."""

import dataclasses
import functools
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from bert_jax.data import RaggedRows, Table, files_by_split, tables
from bert_jax.objectives import Totals, throughput_totals
from examples.gpt import weights
from examples.gpt.fine_tuning import FORMS, Marks, TaskHead, fine_tuning_totals
from examples.gpt.language_model import LanguageModel, load_tokenizer

UNKNOWN = -1  # The label of a row without one.
# The ids of a row, and those of the other order of its texts.
IDS = "input_ids", "swapped_ids"


@dataclasses.dataclass
class Classifier:
    """A fine-tuned GPT.

    `save` writes what the class GPT2ForSequenceClassification of transformers reads;
    its scores are those of the rows of `encode`, for one row a text.
    """

    head: TaskHead
    params: Mapping[str, Any]
    tokenizer: Any
    labels: tuple[str, ...]
    form: str
    marks: Marks

    def encode(self, *texts: str) -> list[list[int]]:
        """The rows of one text, or of two. Raises ValueError for another number."""
        count, transform = FORMS[self.form]
        if len(texts) != count:
            raise ValueError(f"{len(texts)} texts for {self.form}; give {count}")
        return transform(self.marks, *map(self.tokenizer.encode, texts))

    def classify(self, *texts: str) -> dict[str, float]:
        """The probability of each label for one text, or for two."""
        ids = jnp.array([self.encode(*texts)])
        scores = self.head.apply({"params": self.params}, ids, jnp.ones_like(ids))
        values = np.asarray(jax.nn.softmax(scores.labels[0])).tolist()
        return dict(zip(self.labels, values, strict=True))

    def save(self, directory: str | Path) -> None:
        """Writes config.json, model.safetensors and the tokenizer's files."""
        directory, config = Path(directory), self.head.encoder.config
        name = weights.FAMILIES[config.pre_norm].architecture
        settings = {
            "architectures": [name.replace("LMHeadModel", "ForSequenceClassification")],
            "id2label": dict(enumerate(self.labels)),
            "label2id": {label: i for i, label in enumerate(self.labels)},
            # No other token is free to fill rows: the start is never at an end.
            "pad_token_id": self.marks.vocab_size,
            "form": self.form,
            "max_length": self.marks.max_length,
        }
        score = {"score.weight": np.ascontiguousarray(self.params["score"]["kernel"].T)}
        weights.write(directory, config, self.params["encoder"], settings, score)
        self.tokenizer.save(directory)

    @classmethod
    def load(cls, directory: str | Path) -> "Classifier":
        """Opens the result of `save`, or the work directory of a finished run."""
        directory = weights.model_directory(directory)
        settings, tensors, model = weights.read(directory)
        if "form" not in settings:
            raise ValueError(f"{directory} is not a fine-tuned GPT; fine-tune it first")
        labels = tuple(settings["id2label"].values())
        params = {
            "encoder": weights.read_params(model, tensors),
            "score": {"kernel": tensors["score.weight"].T},
        }
        marks = Marks(settings["pad_token_id"], settings["max_length"])
        head, tokenizer = TaskHead(model, len(labels)), load_tokenizer(directory)
        return cls(head, params, tokenizer, labels, settings["form"], marks)


@dataclasses.dataclass(frozen=True)
class TextClassification:
    """Classification of texts with its rows; `start` is the GPT to start from."""

    rows: Mapping[str, RaggedRows]
    labels: tuple[str, ...]
    tokenizer: Any
    form: str
    marks: Marks
    lm_weight: float
    start: LanguageModel | None
    content: Mapping[str, Table]

    best_metric = "accuracy"

    @property
    def constants(self) -> dict[str, Any]:
        """No array that nothing trains."""
        return {}

    @property
    def loss_weights(self) -> dict[str, float]:
        """Equation 5: the loss of the task, and a part of that of the tokens."""
        return {"task_loss": 1.0, "lm_loss": self.lm_weight}

    @functools.cached_property
    def fingerprint(self) -> dict[str, Any]:
        """Digests of the files and the tokenizer."""
        digests = {
            split: hashlib.sha256(repr(table).encode()).hexdigest()[:16]
            for split, table in self.content.items()
        }
        return {"data": digests, "tokenizer": self.tokenizer.fingerprint}

    @property
    def example_batch(self) -> dict[str, np.ndarray]:
        """The smallest inputs that initialise the model."""
        ids = np.zeros((1, 1, 2), np.int32)
        return {"input_ids": ids, "attention_mask": ids + 1}

    def build(self, encoder: nn.Module) -> nn.Module:
        """The head on `encoder`."""
        return TaskHead(encoder, len(self.labels))

    def pretrained_params(self, init_from: str) -> dict[str, Any]:
        """Parameters of the GPT, with new rows in the table of words for the marks."""
        params, config = dict(self.start.params), self.start.model.config
        table = params["embeddings"]["word"]
        shape = (Marks.count, table.shape[1])
        new = np.random.default_rng(0).normal(0, config.initializer_range, shape)
        table = np.concatenate([table, new.astype(np.float32)])
        embeddings = {**params["embeddings"], "word": table}
        return {"encoder": {**params, "embeddings": embeddings}}

    def loss(self, model, params, batch, key) -> tuple[Totals, dict]:
        """See `fine_tuning_totals`; in evaluation also the scores `[B, C]`."""
        labels = batch["labels"]
        valid = batch.get("valid", jnp.ones(len(labels), bool))
        names = [name for name in IDS if name in batch]
        ids = jnp.stack([batch[name] for name in names], axis=1)
        mask = batch["attention_mask"][:, None].repeat(len(names), 1)
        outputs = model.apply(
            {"params": params},
            ids,
            mask,
            deterministic=key is None,
            rngs=None if key is None else {"dropout": key},
        )
        counts = (valid & (labels != UNKNOWN)).astype(jnp.float32)
        answers = jnp.maximum(labels, 0)
        totals = fine_tuning_totals(outputs, ids, mask, answers, counts)
        real = (mask * valid[:, None, None]).reshape(-1, mask.shape[-1])
        throughput = throughput_totals(model.encoder.config, real, totals["lm_loss"][1])
        return totals | throughput, {"scores": outputs.labels}

    def report(
        self, split: str, totals: Mapping[str, Any], predictions: Mapping[str, Any]
    ) -> dict[str, float]:
        """Averages, and the accuracy; {} for rows without labels."""
        named = {name: totals[name] for name in ("task_loss", "lm_loss", "accuracy")}
        means = {k: float(s) / max(float(n), 1e-9) for k, (s, n) in named.items()}
        if split != "train" and UNKNOWN in self.rows[split].columns["labels"]:
            return {}
        loss = sum(weight * means[term] for term, weight in self.loss_weights.items())
        return {"loss": loss, **means}

    def to_models(
        self, module: nn.Module, params: Any, history: Mapping[str, Any]
    ) -> dict[str, Classifier]:
        """The classifier, saved to model/."""
        options = self.tokenizer, self.labels, self.form, self.marks
        return {"model": Classifier(module, params, *options)}

    def write_predictions(
        self, workdir: Path, split: str, predictions: Mapping[str, Any]
    ) -> None:
        """Writes predictions/<split>.tsv: the number of each row, and its label."""
        chosen = predictions["scores"].argmax(-1)
        lines = [f"{i}\t{self.labels[x]}\n" for i, x in enumerate(chosen)]
        (workdir / "predictions").mkdir(exist_ok=True)
        text = "".join(["index\tprediction\n", *lines])
        (workdir / f"predictions/{split}.tsv").write_text(text, "utf-8")


@dataclasses.dataclass
class TextClassificationConfig:
    """Fine-tuning on labelled texts, as a recipe describes it.

    Attributes:
      train, dev: .tsv, .csv or .jsonl files to train on, and to evaluate on.
      test: such files to predict, and to score if they have labels.
      form: one of `FORMS`: "classification" for single texts, "entailment" or
        "similarity" for pairs.
      tokenizer: a directory; None: that of `init_from`.
      max_length: of a row in tokens; longer texts are cut.
      epochs: passes over `train`.
      warmup: the share of the steps in which the learning rate rises.
      lm_weight: the weight of the loss of the tokens; 0 trains on labels alone.
      init_from: set by the run.
    """

    train: str | None = None
    dev: str | None = None
    test: tuple[str, ...] = ()
    form: str = "classification"
    tokenizer: str | None = None
    max_length: int = 64
    epochs: float = 3.0
    warmup: float = 0.002
    lm_weight: float = 0.5
    init_from: str | None = None

    @functools.cached_property
    def content(self) -> dict[str, Table]:
        """The rows of all files by split; each is read once."""
        splits = files_by_split(self.train, self.dev, self.test, "task.test")
        train = tables.read(splits.pop("train"))
        return {"train": train} | {
            split: tables.read(path, train.columns, labelled=split == "eval")
            for split, path in splits.items()
        }

    @functools.cached_property
    def start(self) -> LanguageModel | None:
        """The GPT to start from, if any, loaded once."""
        return LanguageModel.load(self.init_from) if self.init_from else None

    @functools.cached_property
    def loaded_tokenizer(self) -> Any:
        """The tokenizer. Raises ValueError if there is none."""
        start = self.start.tokenizer if self.start else None
        tokenizer = load_tokenizer(Path(self.tokenizer)) if self.tokenizer else start
        if tokenizer is None:
            raise ValueError(
                f"init_from={self.init_from!r} and task.tokenizer={self.tokenizer!r} "
                "have no tokenizer; name the directory of one with task.tokenizer"
            )
        return tokenizer

    def resolve(self, config: Any) -> Any:
        """The run's config: the size of the start, room for the marks, and steps."""
        self.check()
        task = self
        if self.init_from != config.init_from:
            task = dataclasses.replace(self, init_from=config.init_from)
        size = task.loaded_tokenizer.vocab_size
        encoder = config.encoder
        if task.start:
            encoder = task.start.model.config
            size = encoder.vocab_size
        encoder = dataclasses.replace(encoder, vocab_size=size + Marks.count)
        if not Marks.count < self.max_length <= encoder.max_length:
            raise ValueError(
                f"task.max_length={self.max_length} is not between {Marks.count + 1} "
                f"and the {encoder.max_length} positions of the model; change it"
            )
        steps = len(task.content["train"]) * self.epochs / max(1, config.batch_size)
        steps = max(1, int(steps))
        every = max(1, int(steps / self.epochs))
        warmup = config.optimizer.warmup_steps or int(steps * self.warmup)
        return dataclasses.replace(
            config,
            task=task,
            encoder=encoder,
            num_steps=steps,
            optimizer=dataclasses.replace(config.optimizer, warmup_steps=warmup),
            log_every=min(config.log_every, steps),
            eval_every=config.eval_every or every,
            checkpoint_every=config.checkpoint_every or every,
        )

    def check(self) -> None:
        """Raises ValueError for a field that cannot be right."""
        for field in ("train", "dev"):
            if not getattr(self, field):
                raise ValueError(f"task.{field} names no file; give a .tsv file")
        if self.form not in FORMS:
            raise ValueError(
                f"task.form={self.form!r} is unknown; choose one of {', '.join(FORMS)}"
            )
        if not 0 < self.epochs < 1e9 or not 0 <= self.warmup < 1 or self.lm_weight < 0:
            raise ValueError(
                f"task.epochs={self.epochs} must be positive, task.warmup="
                f"{self.warmup} a share below 1, task.lm_weight={self.lm_weight} "
                "at least 0; 3, 0.002 and 0.5 are GPT's"
            )

    def prepare(self, workdir: Path, encoder: Any, seed: int) -> TextClassification:
        """Reads and tokenizes all files."""
        marks = Marks(encoder.vocab_size - Marks.count, self.max_length)
        labels = tables.class_names(self.content["train"], regression=False)
        rows = {
            split: self._rows(x, labels, marks) for split, x in self.content.items()
        }
        sizes = [f"{len(x):,} in {split}" for split, x in rows.items()]
        print(f"rows: {', '.join(sizes)}; labels: {', '.join(labels)}", flush=True)
        options = self.loaded_tokenizer, self.form, marks, self.lm_weight, self.start
        return TextClassification(rows, labels, *options, self.content)

    def _rows(self, table: Table, labels: tuple[str, ...], marks: Marks) -> RaggedRows:
        count, transform = FORMS[self.form]
        texts = [table.texts, table.pairs][: 2 if table.pairs else 1]
        if len(texts) != count:
            raise ValueError(
                f"{table.path} has {len(texts)} text for each label, but task.form="
                f"{self.form!r} takes {count}; choose another form"
            )
        encoded = [[self.loaded_tokenizer.encode(x) for x in side] for side in texts]
        rows = [transform(marks, *row) for row in zip(*encoded, strict=True)]
        numbers = (
            tables.classes(table, labels) if table.labels else [UNKNOWN] * len(rows)
        )
        return RaggedRows(
            {
                name: [np.array(row[i], np.int32) for row in rows]
                for i, name in enumerate(IDS[: len(rows[0])])
            },
            fill=dict.fromkeys(IDS, 0),
            columns={"labels": np.array(numbers, np.int32)},
            max_length=self.max_length,
        )
