"""Fine-tuning to label each word: entities, parts of speech."""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

from bert_jax import files, metrics
from bert_jax.data import conll, word_windows
from bert_jax.data.conll import Columns, Sentences
from bert_jax.data.ragged import RaggedRows
from bert_jax.files import counted
from bert_jax.inference.model import Model
from bert_jax.inference.tag import Tag
from bert_jax.models import heads
from bert_jax.models.config import EncoderConfig
from bert_jax.objectives.losses import Batch, Totals, throughput_totals
from bert_jax.tasks import fine_tuning
from bert_jax.tasks.demo import Call, next_steps
from bert_jax.tasks.fine_tuning import FineTuningConfig
from bert_jax.tokenizers import Tokenizer

# The label of a token that does not count: a special one, a piece after the first of
# its word, or a word of the context.
IGNORED = -1


class WordRows(RaggedRows):
    """Rows of tokens with `labels` `[L]`, and their sentences.

    `row` and `position` `[W]` are those of the token that predicts each word.
    """

    def __init__(
        self,
        sentences: Sentences,
        rows: word_windows.Rows,
        labels: list[np.ndarray],
        pad_id: int,
        max_length: int,
    ):
        super().__init__(
            {"input_ids": rows.ids, "token_type_ids": rows.types, "labels": labels},
            fill={"input_ids": pad_id, "token_type_ids": 0, "labels": IGNORED},
            columns={},
            max_length=max_length,
        )
        self.sentences, self.row, self.position = sentences, rows.row, rows.position

    def by_sentence(self, values: Sequence) -> list[list]:
        """Values of the words `[W]` as a list for each sentence."""
        words = iter(values)
        return [[next(words) for _ in row] for row in self.sentences.words]


def rows_of(
    sentences: Sentences,
    documents: Sequence[int],
    tokenizer: Tokenizer,
    labels: Sequence[str],
    max_length: int,
) -> WordRows:
    """Sentences as rows; without `labels`, or in files without any, no token counts.

    `documents` are the documents of sentences, see `word_windows.lay_out`.
    """
    pieces = word_windows.word_pieces(tokenizer, sentences.words)
    rows = word_windows.lay_out(tokenizer, pieces, documents, max_length)
    targets = [np.full(len(ids), IGNORED, np.int32) for ids in rows.ids]
    if labels and sentences.labels is not None:
        ids = conll.label_ids(sentences, labels)
        for row, position, label in zip(rows.row, rows.position, ids, strict=True):
            targets[row][position] = label
    return WordRows(sentences, rows, targets, tokenizer.pad_id, max_length)


@dataclasses.dataclass(frozen=True)
class TaggingTask(fine_tuning.FineTuningTask[WordRows]):
    """Labelling of words with its rows."""

    head = heads.TokenClassifier
    output = "classifier"

    def totals(self, model: nn.Module, batch: Batch, logits: jax.Array) -> Totals:
        """See `word_totals`."""
        return word_totals(model, batch, logits)

    def comparable(
        self, logits: jax.Array, batch: Batch
    ) -> tuple[jax.Array, jax.Array]:
        """Logits `[B, L, C]`, and weights of 1 for the first piece of each word."""
        return logits, batch["labels"] >= 0

    def predictions(self, logits: jax.Array) -> dict[str, jax.Array]:
        """The most likely labels `[B, L]`."""
        return {"labels": logits.argmax(-1)}

    def averages(self, totals: Mapping[str, Any]) -> dict[str, float]:
        """Averages by name; {} if no token counts."""
        return super().averages({k: x for k, x in totals.items() if x[1] > 0})

    def score(self, split: str, predictions: Mapping[str, Any]) -> dict[str, float]:
        """F1, precision and recall of entities, or accuracy over words.

        {} for a split without labels.
        """
        source = self.rows[split]
        labels, predicted = source.sentences.labels, self.decode(predictions, source)
        if labels is None:
            return {}
        if self.metrics[0] == "f1":
            scores = metrics.entity_score(labels, predicted)._asdict()
            return {name: scores[name] for name in ("f1", "precision", "recall")}
        words = (np.concatenate(x) for x in (labels, predicted))
        return {"accuracy": metrics.accuracy(*words)}

    def constant_score(self, split: str) -> float:
        """0 for entities, the F1 of none; else the share of the commonest label."""
        labels = self.rows[split].sentences.labels
        if self.metrics[0] == "f1" or labels is None:
            return 0.0
        words = [label for sentence in labels for label in sentence]
        _, counts = np.unique(words, return_counts=True)
        return float(counts.max() / len(words))

    def decode(
        self, predictions: Mapping[str, Any], source: WordRows
    ) -> list[list[str]]:
        """Names of the predicted labels of the words of each sentence."""
        ids = predictions["labels"][source.row, source.position]
        return source.by_sentence([self.labels[i] for i in ids])

    def write_predictions(
        self, workdir: Path, split: str, predictions: Mapping[str, Any]
    ) -> None:
        """Writes `predictions/<split>.conll`: words, labels if known, and predictions.

        Tabs separate columns; a tab within a word becomes _.
        """
        source = self.rows[split]
        columns = [source.sentences.words, self.decode(predictions, source)]
        if source.sentences.labels is not None:
            columns.insert(1, source.sentences.labels)
        file = predictions_file(workdir, split)
        files.make_directory(file.parent)
        with files.new_file(file) as out:
            for sentence in zip(*columns, strict=True):
                for word, *labels in zip(*sentence, strict=True):
                    print(_written(word), *labels, sep="\t", file=out)
                print(file=out)

    def demo(self, model: Model, workdir: Path) -> str:
        """The first held-out sentence with its labels, and scores by type."""
        sentence = self.rows["eval"].sentences.words[0]
        # A list of texts has a list of tags for each.
        (tags,) = cast(list[list[Tag]], model.tag([sentence]))
        tagged = " ".join(
            tag.word if tag.label == "O" else f"{tag.word}[{tag.label}]" for tag in tags
        )
        return f"\nheld out, read alone: {tagged}\n{self._table(workdir).rstrip()}"

    def next_steps(self, workdir: Path, shell: bool) -> str:
        """The model's directory and a call to try."""
        sentence = " ".join(self.rows["eval"].sentences.words[0])
        return next_steps(workdir, Call("tag", (sentence,), sentence), shell)

    def _table(self, workdir: Path) -> str:
        """Scores by type on the held-out sentences, from the written predictions."""
        if self.metrics[0] != "f1":
            return ""
        file = predictions_file(workdir, "eval")
        labels, predicted = (
            conll.read(file, Columns(0, column)).labels or [] for column in (1, 2)
        )
        scores = metrics.entity_scores_by_type(labels, predicted)
        width = max(map(len, scores), default=0)
        rows = [
            f"  {kind:{width}}  {x.precision:9.4f}  {x.recall:6.4f}  {x.f1:6.4f}"
            f"  {x.support:6,}"
            for kind, x in scores.items()
        ]
        head = f"  {'':{width}}  precision  recall      f1  entities"
        return "\n".join(["", head, *rows, ""])


def predictions_file(workdir: Path, split: str) -> Path:
    """The file of written predictions."""
    return Path(workdir) / "predictions" / f"{split}.conll"


def _written(word: str) -> str:
    """A word as a cell: not blank, and without tabs and line breaks."""
    return re.sub(r"[\t\r\n]", "_", word) if word.strip(" \t\r\n") else "_"


def word_totals(model: nn.Module, batch: Batch, logits: jax.Array) -> Totals:
    """Sums and counts over words: cross-entropy and accuracy; tokens and flops.

    Args:
      model: has the encoder, for FLOPs.
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
        **throughput_totals(model.encoder.config, mask, jnp.zeros(())),
    }


CONTEXTS = ("sentence", "document")


@dataclasses.dataclass
class TaggingConfig(FineTuningConfig[Sentences]):
    """A label for each word of a sentence, as a recipe describes it.

    The first piece of each word predicts its label (Devlin et al., 2018, section 5.3);
    a sentence that does not fit into a row is cut between words, see `word_windows`.

    Attributes:
      train, dev: files of columns (CoNLL, .conllu) or .jsonl files.
      test: such files to predict; they need no labels.
      token, label: columns, by name or position from 0 (from the end if negative);
        None finds them.
      labels: names of the labels by number; none: those of `train`.
      context: "sentence" reads each sentence alone, "document" with as much of its
        document on either side as fits into a row. Documents begin at -DOCSTART-; a
        file without it is one document.

    >>> import json
    >>> row = {"tokens": ["Ada", "sings"], "tags": ["B-PER", "O"]}
    >>> _ = Path("words.jsonl").write_text(json.dumps(row))
    >>> TaggingConfig(train="words.jsonl", dev="words.jsonl", tokenizer="start").count()
    1
    """

    token: str | None = None
    label: str | None = None
    labels: tuple[str, ...] = ()
    context: str = "sentence"

    files: ClassVar[str] = "a .conll, .conllu or .jsonl file"

    def read(
        self, path: str, like: Sentences | None = None, labelled: bool = True
    ) -> Sentences:
        """The sentences of a file."""
        columns = Columns(self.token, self.label, self.labels)
        return conll.read(path, like.columns if like else columns, labelled=labelled)

    def count(self) -> int:
        """The number of rows of `train`; a long sentence has several."""
        return len(self._rows(self.train_content, self.load_tokenizer()))

    def check(self) -> None:
        """Raises ValueError for a field that cannot be right."""
        super().check()
        if self.context not in CONTEXTS:
            raise ValueError(
                f"task.context={self.context!r} is not one of {', '.join(CONTEXTS)}; "
                "change it"
            )

    def prepare(self, workdir: Path, encoder: EncoderConfig, seed: int) -> TaggingTask:
        """Reads all files, checks and tokenizes them."""
        content = self.content
        labels = self.label_names(content["train"])
        for sentences in content.values():
            if sentences.labels is not None:
                conll.label_ids(sentences, labels)
        start, tokenizer = self.start(encoder)
        self._describe(content, labels)
        return TaggingTask(
            rows={
                split: self._rows(sentences, tokenizer, labels)
                for split, sentences in content.items()
            },
            labels=labels,
            metrics=("f1",) if metrics.are_entities(labels) else ("accuracy",),
            tokenizer=tokenizer,
            max_length=self.max_length,
            start=start,
            content=content,
            teacher=self.loaded_teacher,
        )

    def _describe(
        self, content: Mapping[str, Sentences], labels: Sequence[str]
    ) -> None:
        """Prints the size of the data; warns of held-out sentences in `train`."""
        train, dev = content["train"], content["eval"]
        same = conll.overlap(train, dev)
        rows = f"{counted(len(dev), 'sentence')} of {dev.path}"
        fine_tuning.warn_of_overlap(same, rows, train.path)
        print(
            f"{train.describe()} to train on; {dev.describe()} held out; "
            f"{counted(len(labels), 'label')} ({', '.join(labels[:20])})"
        )
        for sentences in content.values():
            if self.context == "document" and len(set(sentences.documents)) == 1:
                print(f"{sentences.path} is one document, for no -DOCSTART- parts it")

    def label_names(self, train: Sentences) -> tuple[str, ...]:
        """Names of the labels."""
        names = {x for row in train.labels or () for x in row}
        return self.labels or tuple(sorted(names))

    def _rows(
        self, sentences: Sentences, tokenizer: Tokenizer, labels: Sequence[str] = ()
    ) -> WordRows:
        documents = sentences.documents
        if self.context == "sentence":
            documents = list(range(len(sentences)))
        return rows_of(sentences, documents, tokenizer, labels, self.max_length)
