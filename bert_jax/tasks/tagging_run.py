"""What the loop runs to label words: rows, loss, scores and predictions."""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax

from bert_jax import metrics, metrics_entities, word_rows
from bert_jax.data import conll
from bert_jax.data.conll import Sentences
from bert_jax.data.ragged import RaggedRows
from bert_jax.models import heads
from bert_jax.predict import Model
from bert_jax.tasks import finetuned_run
from bert_jax.tasks.pretraining_loss import Totals, work
from bert_jax.tasks.showcase import next_words
from bert_jax.tokenizers import Tokenizer

# The label of a token that does not count: of a special one, a piece that is not its
# word's first, or a word that is there to be read with others.
IGNORED = -1


class WordRows(RaggedRows):
    """Rows of tokens with `labels` `[L]`, and the sentences they were made of.

    `row` and `position` `[W]` say where each word is predicted.
    """

    def __init__(
        self,
        sentences: Sentences,
        rows: word_rows.Rows,
        labels: list[np.ndarray],
        pad_id: int,
        longest: int,
    ):
        super().__init__(
            {"input_ids": rows.ids, "token_type_ids": rows.types, "labels": labels},
            fill={"input_ids": pad_id, "token_type_ids": 0, "labels": IGNORED},
            columns={},
            longest=longest,
        )
        self.sentences, self.row, self.position = sentences, rows.row, rows.position

    def by_sentence(self, of_words: Sequence) -> list[list]:
        """What belongs to the words `[W]`, as a list for each sentence."""
        words = iter(of_words)
        return [[next(words) for _ in row] for row in self.sentences.words]


def rows_of(
    sentences: Sentences,
    documents: Sequence[int],
    tokenizer: Tokenizer,
    labels: Sequence[str],
    max_length: int,
) -> WordRows:
    """Sentences as rows; without `labels`, or where they have none, nothing counts.

    `documents` are those that sentences are read with, see `word_rows.lay_out`.
    """
    pieces = word_rows.word_pieces(tokenizer, sentences.words)
    rows = word_rows.lay_out(tokenizer, pieces, documents, max_length)
    targets = [np.full(len(ids), IGNORED, np.int32) for ids in rows.ids]
    if labels and sentences.labels is not None:
        ids = conll.label_ids(sentences, labels)
        for row, position, label in zip(rows.row, rows.position, ids, strict=True):
            targets[row][position] = label
    return WordRows(sentences, rows, targets, tokenizer.pad_id, max_length)


@dataclasses.dataclass(frozen=True)
class Prepared(finetuned_run.Prepared):
    """Labelling of words with its rows at hand."""

    head = heads.TokenClassifier
    output = "classifier"

    def totals(self, model, batch, logits) -> Totals:
        """See `totals_of`."""
        return totals_of(model, batch, logits)

    def compared(self, logits, batch) -> tuple[jax.Array, jax.Array]:
        """All tokens `[B, L, C]`, of which those count that stand for a word."""
        return logits, batch["labels"] >= 0

    def evaluate(self, model, params, batch) -> tuple[dict, dict]:
        """Totals, and the likeliest labels `[B, L]`."""
        logits = self.logits(model, params, batch, None)
        return totals_of(model, batch, logits), {"labels": logits.argmax(-1)}

    def summary(self, totals) -> dict[str, float]:
        """Averages by name; none where nothing counts."""
        return super().summary({k: x for k, x in totals.items() if x[1] > 0})

    def score(self, predictions, source: WordRows) -> dict[str, float]:
        """F1, precision and recall of entities, else accuracy over words; {} without
        labels to compare with."""
        real, said = source.sentences.labels, self.said(predictions, source)
        if real is None:
            return {}
        if self.metrics[0] == "f1":
            found = metrics_entities.score(real, said)._asdict()
            return {name: found[name] for name in ("f1", "precision", "recall")}
        return {
            "accuracy": metrics.accuracy(*(np.concatenate(x) for x in (real, said)))
        }

    def said(self, predictions: Mapping, source: WordRows) -> list[list[str]]:
        """Names of the predicted labels of each sentence's words."""
        chosen = predictions["labels"][source.row, source.position]
        return source.by_sentence([self.labels[i] for i in chosen])

    def write(self, workdir: Path, split: str, predictions: Mapping) -> None:
        """Writes `predictions/<split>.conll`: words, labels if known, and predictions.

        Columns have a tab between them; a tab within a word becomes _.
        """
        source = self.sources[split]
        columns = [source.sentences.words, self.said(predictions, source)]
        if source.sentences.labels is not None:
            columns.insert(1, source.sentences.labels)
        file = predictions_file(workdir, split)
        file.parent.mkdir(exist_ok=True)
        with file.open("w", encoding="utf-8", newline="\n") as out:
            for sentence in zip(*columns, strict=True):
                for word, *labels in zip(*sentence, strict=True):
                    print(_written(word), *labels, sep="\t", file=out)
                print(file=out)

    def closing_words(self, model: Model, workdir: Path) -> str:
        """What to show when the run is over."""
        sentence = self.sources["eval"].sentences.words[0]
        (found,) = model.tag([sentence])
        tagged = " ".join(
            tag.word if tag.label == "O" else f"{tag.word}[{tag.label}]"
            for tag in found
        )
        return f"\nheld out, read alone: {tagged}\n{self._table(workdir).rstrip()}"

    def next_words(self, workdir: Path) -> str:
        """Where the model is, and what to type next."""
        sentence = " ".join(self.sources["eval"].sentences.words[0])
        return next_words(workdir, f"tag({sentence!r})")

    def _table(self, workdir):
        """Scores by type on the held-out sentences, from what was written of them."""
        if self.metrics[0] != "f1":
            return ""
        real = conll.read(predictions_file(workdir, "eval"), conll.Columns(0, 1))
        said = conll.read(predictions_file(workdir, "eval"), conll.Columns(0, 2))
        found = metrics_entities.score_by_type(real.labels, said.labels)
        width = max(map(len, found), default=0)
        rows = [
            f"  {kind:{width}}  {x.precision:9.4f}  {x.recall:6.4f}  {x.f1:6.4f}"
            f"  {x.count:6,}"
            for kind, x in found.items()
        ]
        head = f"  {'':{width}}  precision  recall      f1  entities"
        return "\n".join(["", head, *rows, ""])


def predictions_file(workdir: Path, split: str) -> Path:
    """Where predictions go."""
    return Path(workdir) / "predictions" / f"{split}.conll"


def _written(word):
    """A word as a cell: not blank, and without what separates cells and rows."""
    return re.sub(r"[\t\r\n]", "_", word) if word.strip(" \t\r\n") else "_"


def totals_of(
    model: heads.TokenClassifier, batch: Mapping[str, jax.Array], logits: jax.Array
) -> Totals:
    """Sums and counts over words: cross-entropy and accuracy; tokens and flops.

    Args:
      model: tells its sizes.
      batch: with `labels` `[B, L]`, where those below 0 do not count, and in evaluation
        `valid` `[B]`, false on rows that only fill the batch.
      logits: `[B, L, C]`.
    """
    labels = batch["labels"]
    valid = batch.get("valid", jnp.ones(len(labels), bool))[:, None]
    weights = ((labels >= 0) & valid).astype(jnp.float32)
    # optax would train the last class by a label of -1.
    known = jnp.maximum(labels, 0)
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, known)
    right = logits.argmax(-1) == labels
    count = weights.sum()
    mask = batch["attention_mask"] * valid
    return {
        "loss": ((losses * weights).sum(), count),
        "accuracy": ((right * weights).sum(), count),
        **work(model.encoder.config, mask, jnp.zeros(())),
    }
