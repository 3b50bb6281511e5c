"""What the loop runs to choose: rows, loss, score and predictions."""

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax

from bert_jax import metrics
from bert_jax.data.choice_columns import ChoiceColumns
from bert_jax.data.choices import ChoiceRows, Questions
from bert_jax.data.ragged import RaggedRows
from bert_jax.models import heads
from bert_jax.predict import Model
from bert_jax.tasks import finetuned_run
from bert_jax.tasks.pretraining_loss import Totals, work
from bert_jax.tasks.showcase import next_words
from bert_jax.tokenizers import Tokenizer
from bert_jax.verbs.choose import joined

SEQUENCES = ("input_ids", "token_type_ids")

# So many rows are tokenized together.
CHUNK = 256

# The label of a row that says nothing.
UNKNOWN = -1

# The logit of a choice that is not there.
HOPELESS = -1e9


def rows_of(questions: Questions, tokenizer: Tokenizer, max_length: int) -> ChoiceRows:
    """Questions as pairs of tokens, with `labels` int32 `[N]`."""
    C = max(map(len, questions.choices))
    sequences = {name: [] for name in SEQUENCES}
    for start in range(0, len(questions), CHUNK):
        rows = range(start, min(start + CHUNK, len(questions)))
        firsts, seconds = zip(*_pairs(questions, rows), strict=True)
        batch = tokenizer(firsts, seconds, max_length=max_length)
        real = batch["attention_mask"] > 0
        for name, found in sequences.items():
            each = iter([x[y] for x, y in zip(batch[name], real, strict=True)])
            for row in rows:
                count = len(questions.choices[row])
                found += [next(each) if c < count else _NOTHING for c in range(C)]
    labels = questions.labels or [UNKNOWN] * len(questions)
    return ChoiceRows(
        RaggedRows(
            sequences,
            fill={"input_ids": tokenizer.pad_id, "token_type_ids": 0},
            columns={},
            longest=max_length,
            pads_left=tokenizer.specials.pads_left,
        ),
        choices=C,
        columns={"labels": np.array(labels, np.int32)},
    )


_NOTHING = np.zeros(0, np.int32)


def _pairs(questions: Questions, rows: range) -> Iterator[tuple[str, str]]:
    for row in rows:
        for choice in questions.choices[row]:
            yield questions.contexts[row], joined(questions.openings[row], choice)


@dataclasses.dataclass(frozen=True)
class Prepared(finetuned_run.Prepared):
    """Multiple choice with its rows at hand.

    Attributes:
      columns: of the files, which say how labels are written.
      first: the first held-out question, as `Model.choose` takes it.
    """

    columns: ChoiceColumns
    first: tuple[tuple[str, str], list[str]]

    head = heads.MultipleChoice
    output = "classifier"
    fields = {}

    @property
    def example(self) -> dict[str, np.ndarray]:
        """The least input that initialises the model."""
        return {"input_ids": np.zeros((1, 2, 2), np.int32)}

    def logits(self, model, params, batch, key) -> jax.Array:
        """`[B, C]`, hopeless for a choice that has no token."""
        logits = super().logits(model, params, batch, key)
        there = (batch["attention_mask"] > 0).any(-1)
        return jnp.where(there, logits, HOPELESS)

    def evaluate(self, model, params, batch) -> tuple[dict, dict]:
        """Totals, and `probabilities` `[B, C]`, 0 where a row has fewer choices."""
        logits = self.logits(model, params, batch, None)
        found = {"probabilities": jax.nn.softmax(logits)}
        return self.totals(model, batch, logits), found

    def score(self, predictions, source: ChoiceRows) -> dict[str, float]:
        """Accuracy over all rows; nothing without labels."""
        labels = source.columns["labels"]
        if UNKNOWN in labels:
            return {}
        found = predictions["probabilities"].argmax(1)
        return {"accuracy": metrics.accuracy(labels, found)}

    def write(self, workdir: Path, split: str, predictions: Mapping) -> None:
        """predictions/<split>.tsv: what is chosen and, if known, the label of each row,
        both as labels are written."""
        called, labels = self.columns.called, self.source(split).columns["labels"]
        found = predictions["probabilities"].argmax(1).tolist()
        columns = {"index": range(len(found)), "prediction": map(called, found)}
        if UNKNOWN not in labels:
            columns["label"] = map(called, labels.tolist())
        rows = [columns, *zip(*columns.values(), strict=True)]
        file = workdir / f"predictions/{split}.tsv"
        file.parent.mkdir(exist_ok=True)
        file.write_text("".join("\t".join(map(str, row)) + "\n" for row in rows))

    def closing_words(self, model: Model, workdir: Path) -> str:
        """What to show when the run is over."""
        asked, choices = self._asked
        return f"\nheld out: {asked!r}\n  {model.choose(asked, choices)[0]}"

    def next_words(self, workdir: Path) -> str:
        """Where the model is, and what to type next."""
        asked, choices = self._asked
        return next_words(workdir, f"choose({asked!r}, {choices!r})")

    @property
    def _asked(self):
        (context, opening), choices = self.first
        return ((context, opening) if opening else context), choices

    def totals(self, model, batch, logits) -> Totals:
        """Loss (cross-entropy over the choices), accuracy, tokens and flops."""
        labels = batch["labels"]
        valid = batch.get("valid", jnp.ones(len(labels), bool))
        known = (valid & (labels != UNKNOWN)).astype(jnp.float32)
        # Any choice will do where the right one is not known.
        answers = jnp.maximum(labels, 0)
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, answers)
        right = logits.argmax(-1) == answers
        mask = batch["attention_mask"] * valid[:, None, None]
        L = mask.shape[-1]
        return {
            "loss": ((losses * known).sum(), known.sum()),
            "accuracy": ((right * known).sum(), known.sum()),
            **work(model.encoder.config, mask.reshape(-1, L), jnp.zeros(())),
        }
