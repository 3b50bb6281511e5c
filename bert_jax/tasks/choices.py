"""Fine-tuning to find the right one of several choices, as in SWAG."""

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

from bert_jax import files, metrics
from bert_jax.data import choices
from bert_jax.data.choices import ChoiceColumns, Questions
from bert_jax.data.ragged import ChoiceRows, RaggedRows
from bert_jax.files import counted
from bert_jax.inference.choose import Choice, Context, second_text
from bert_jax.inference.model import Model
from bert_jax.models import heads
from bert_jax.models.config import EncoderConfig
from bert_jax.objectives.losses import Batch, Params, Totals, throughput_totals
from bert_jax.tasks import fine_tuning
from bert_jax.tasks.demo import Call, next_steps
from bert_jax.tasks.fine_tuning import FineTuningConfig, check_pooling, row_pooling
from bert_jax.tokenizers import Tokenizer

SEQUENCES = ("input_ids", "token_type_ids")

# Rows that are tokenized together.
CHUNK = 256

# The label of a row without one.
UNKNOWN = -1

# The logit of a missing choice.
VERY_LOW = -1e9


def rows_of(questions: Questions, tokenizer: Tokenizer, max_length: int) -> ChoiceRows:
    """Questions as pairs of tokens, with `labels` int32 `[N]`."""
    C = max(map(len, questions.choices))
    sequences: dict[str, list[np.ndarray]] = {name: [] for name in SEQUENCES}
    for start in range(0, len(questions), CHUNK):
        rows = range(start, min(start + CHUNK, len(questions)))
        firsts, seconds = zip(*_pairs(questions, rows), strict=True)
        batch = tokenizer(firsts, seconds, max_length=max_length)
        real = batch["attention_mask"] > 0
        for name, sequence in sequences.items():
            each = iter([x[y] for x, y in zip(batch[name], real, strict=True)])
            for row in rows:
                count = len(questions.choices[row])
                sequence += [next(each) if c < count else _NOTHING for c in range(C)]
    labels = questions.labels or [UNKNOWN] * len(questions)
    return ChoiceRows(
        RaggedRows(
            sequences,
            fill={"input_ids": tokenizer.pad_id, "token_type_ids": 0},
            columns={},
            max_length=max_length,
            pads_left=tokenizer.specials.pads_left,
        ),
        choices=C,
        columns={"labels": np.array(labels, np.int32)},
    )


_NOTHING = np.zeros(0, np.int32)


def _pairs(questions: Questions, rows: range) -> Iterator[tuple[str, str]]:
    for row in rows:
        for choice in questions.choices[row]:
            yield questions.contexts[row], second_text(questions.openings[row], choice)


@dataclasses.dataclass(frozen=True)
class ChoiceTask(fine_tuning.FineTuningTask[ChoiceRows]):
    """Multiple choice with its rows.

    Attributes:
      columns: of the files; they define how labels are written.
      first: the first held-out question with its choices.
    """

    columns: ChoiceColumns
    first: tuple[tuple[str, str], list[str]]

    head = heads.MultipleChoice
    output = "classifier"
    fields = {}

    @property
    def example_batch(self) -> dict[str, np.ndarray]:
        """The smallest inputs that initialise the model."""
        return {"input_ids": np.zeros((1, 2, 2), np.int32)}

    def logits(
        self, model: nn.Module, params: Params, batch: Batch, key: jax.Array | None
    ) -> jax.Array:
        """`[B, C]`, very low for a missing choice."""
        logits = super().logits(model, params, batch, key)
        exists = (batch["attention_mask"] > 0).any(-1)
        return jnp.where(exists, logits, VERY_LOW)

    def predictions(self, logits: jax.Array) -> dict[str, jax.Array]:
        """`probabilities` `[B, C]`, 0 for missing choices."""
        return {"probabilities": jax.nn.softmax(logits)}

    def score(self, split: str, predictions: Mapping[str, Any]) -> dict[str, float]:
        """Accuracy over all rows; {} without labels."""
        labels = self.rows[split].columns["labels"]
        if UNKNOWN in labels:
            return {}
        chosen = predictions["probabilities"].argmax(1)
        return {"accuracy": metrics.accuracy(labels, chosen)}

    def constant_score(self, split: str) -> float:
        """The accuracy of always the same choice, the best one."""
        labels = self.rows[split].columns["labels"]
        return float(np.bincount(labels).max() / len(labels))

    def write_predictions(
        self, workdir: Path, split: str, predictions: Mapping[str, Any]
    ) -> None:
        """Writes predictions/<split>.tsv: the chosen label of each row, and its own.

        Both are written as in the files; a file without labels has no third column.
        """
        label_of, labels = self.columns.label_of, self.rows[split].columns["labels"]
        chosen = predictions["probabilities"].argmax(1).tolist()
        columns = {"index": range(len(chosen)), "prediction": map(label_of, chosen)}
        if UNKNOWN not in labels:
            columns["label"] = map(label_of, labels.tolist())
        rows = [columns, *zip(*columns.values(), strict=True)]
        file = workdir / f"predictions/{split}.tsv"
        files.make_directory(file.parent)
        lines = ("\t".join(map(str, row)) + "\n" for row in rows)
        files.write_text(file, "".join(lines))

    def demo(self, model: Model, workdir: Path) -> str:
        """The first held-out question with the choice of the model."""
        question, choices = self._first
        # One question has one list of choices.
        ranked = cast(list[Choice], model.choose(question, choices))
        lines = [f"  {choice.probability:4.0%}  {choice.text}" for choice in ranked]
        return "\n".join(["", f"held out: {question!r}", *lines])

    def next_steps(self, workdir: Path, shell: bool) -> str:
        """The model's directory and a call to try."""
        (context, opening), choices = self.first
        record = {"context": context, "opening": opening, "choices": choices}
        record = {name: value for name, value in record.items() if value}
        call = Call("choose", self._first, "", record)
        return next_steps(workdir, call, shell)

    @property
    def _first(self) -> tuple[Context, list[str]]:
        (context, opening), choices = self.first
        return ((context, opening) if opening else context), choices

    def totals(self, model: nn.Module, batch: Batch, logits: jax.Array) -> Totals:
        """Loss (cross-entropy over the choices), accuracy, tokens and flops."""
        labels = batch["labels"]
        valid = batch.get("valid", jnp.ones(len(labels), bool))
        known = (valid & (labels != UNKNOWN)).astype(jnp.float32)
        # The weight of an unknown answer is 0, so any class is right.
        answers = jnp.maximum(labels, 0)
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, answers)
        right = logits.argmax(-1) == answers
        mask = batch["attention_mask"] * valid[:, None, None]
        L = mask.shape[-1]
        return {
            "loss": ((losses * known).sum(), known.sum()),
            "accuracy": ((right * known).sum(), known.sum()),
            **throughput_totals(
                model.encoder.config, mask.reshape(-1, L), jnp.zeros(())
            ),
        }


@dataclasses.dataclass
class ChoiceConfig(FineTuningConfig[Questions]):
    """Contexts with choices, one of which is right, as a recipe describes it.

    Each choice is a pair: the context, and the opening followed by the choice (Devlin
    et al., 2018, section 4.4). One softmax goes over the scores of all choices.

    Attributes:
      train, dev: .csv, .tsv or .jsonl files with names of columns.
      test: such files to predict; they need no labels.
      context: the column of contexts; None finds it.
      opening: the column of texts that open every choice; "" for none.
      choices: a column for each choice, or one column of lists.
      label: the column of right choices, which are numbers from 0 or 1, letters, or
        names of columns.
      pooling: see `ClassificationConfig`.

    >>> import json
    >>> row = {"context": "we ate", "choices": ["bread .", "stones ."], "label": 0}
    >>> _ = Path("choices.jsonl").write_text(json.dumps(row))
    >>> ChoiceConfig(train="choices.jsonl", dev="choices.jsonl").count()
    1
    """

    context: str | None = None
    opening: str | None = None
    choices: tuple[str, ...] = ()
    label: str | None = None
    pooling: str | None = None

    def check(self) -> None:
        """Raises ValueError for a field that cannot be right."""
        super().check()
        check_pooling(self.pooling)

    def read(
        self, path: str, like: Questions | None = None, labelled: bool = True
    ) -> Questions:
        """The questions of a file."""
        columns = ChoiceColumns(self.context, self.opening, self.choices, self.label)
        return choices.read(path, like.columns if like else columns, labelled)

    def prepare(self, workdir: Path, encoder: EncoderConfig, seed: int) -> ChoiceTask:
        """Reads all files, checks and tokenizes them."""
        content = self.content
        start, tokenizer = self.start(encoder)
        _describe(content)
        dev = content["eval"]
        return ChoiceTask(
            rows={
                split: rows_of(questions, tokenizer, self.max_length)
                for split, questions in content.items()
            },
            labels=(),
            metrics=("accuracy",),
            tokenizer=tokenizer,
            max_length=self.max_length,
            start=start,
            content=content,
            pooling=row_pooling(self.pooling, start, ChoiceTask.head),
            teacher=self.loaded_teacher,
            columns=content["train"].columns,
            first=((dev.contexts[0], dev.openings[0]), dev.choices[0]),
        )


def _describe(content: Mapping[str, Questions]) -> None:
    """Prints the size of the data; warns of held-out rows that are in `train`, too."""
    train, dev = content["train"], content["eval"]
    same = choices.overlap(train, dev)
    rows = f"{counted(len(dev), 'row')} of {dev.path}"
    fine_tuning.warn_of_overlap(same, rows, train.path)
    counts = sorted({len(row) for row in train.choices})
    range_ = " to ".join(map(str, counts[:1] + counts[1:][-1:]))
    count = counted(len(train), "row")
    print(f"{count} to train on, {len(dev):,} held out, {range_} choices")
