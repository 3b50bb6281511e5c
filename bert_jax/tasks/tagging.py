"""Fine-tuning to label each word: entities, parts of speech."""

import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from bert_jax import metrics_entities, pretrained
from bert_jax.data import conll
from bert_jax.data.conll import Columns, Sentences
from bert_jax.tasks.finetuned import FineTuning
from bert_jax.tasks.tagging_run import Prepared, WordRows, rows_of

CONTEXTS = ("sentence", "document")


@dataclasses.dataclass
class Tagging(FineTuning):
    """A label for each word of a sentence, as a config says it.

    Each word is learnt and predicted at its first piece (Devlin et al., 2018, section
    5.3); a sentence that does not fit into a row is cut between words, see `word_rows`.

    Attributes:
      train, dev: files of columns (CoNLL, .conllu) or .jsonl files; `dev` is what is
        evaluated on.
      test: such files to predict; they need no labels.
      token, label: columns, by name or position from 0 (from the end if negative);
        None finds them.
      labels: names of the labels by number; none takes those of `train`.
      context: what a sentence is read with: "sentence" nothing, "document" as much of
        its document on either side as fits into a row. Documents begin at -DOCSTART-;
        without it, a file is one.

    >>> import json
    >>> row = {"tokens": ["Ada", "sings"], "tags": ["B-PER", "O"]}
    >>> _ = Path("words.jsonl").write_text(json.dumps(row))
    >>> Tagging(train="words.jsonl", dev="words.jsonl", tokenizer="start").count()
    1
    """

    token: str | None = None
    label: str | None = None
    labels: tuple[str, ...] = ()
    context: str = "sentence"

    files: ClassVar[str] = "a .conll, .conllu or .jsonl file"

    def count(self) -> int:
        """Rows of `train`."""
        start = None
        if not self.tokenizer and self.init_from:
            start = pretrained.load(self.init_from)
        return len(self._rows(self._read(), self.vocabulary(start)))

    def check(self) -> None:
        """Raises ValueError for a field that cannot be right."""
        super().check()
        if self.context not in CONTEXTS:
            raise ValueError(
                f"task.context={self.context!r} is none of {', '.join(CONTEXTS)}; "
                "change it"
            )

    def prepare(self, workdir: Path, encoder: Any, seed: int) -> Prepared:
        """All files read, checked and cut into tokens."""
        train = self._read()
        found = {"train": train, "eval": conll.read(self.dev, train.columns)}
        for split, path in self.splits().items():
            if split not in found:
                found[split] = conll.read(path, train.columns, labelled=False)
        labels = self.label_names(train)
        for sentences in found.values():
            if sentences.labels is not None:
                conll.label_ids(sentences, labels)
        start, tokenizer = self.start(encoder)
        self._say(found, labels)
        return Prepared(
            sources={
                split: self._rows(sentences, tokenizer, labels)
                for split, sentences in found.items()
            },
            labels=labels,
            metrics=("f1",) if metrics_entities.are_entities(labels) else ("accuracy",),
            tokenizer=tokenizer,
            max_length=self.max_length,
            start=start,
            files=(train.path, found["eval"].path),
            lesson=self.lesson,
        )

    def _say(self, found: Mapping[str, Sentences], labels: Sequence[str]) -> None:
        """What there is to learn from, and whether it is too easy to score."""
        train, dev = found["train"], found["eval"]
        same = conll.overlap(train, dev)
        if same:
            warnings.warn(
                f"{same} of the {len(dev)} sentences of {dev.path} stand in "
                f"{train.path} too, so scores on them are too good",
                stacklevel=3,
            )
        print(
            f"{train.describe()} to train on; {dev.describe()} held out; "
            f"{len(labels)} labels ({', '.join(labels[:20])})"
        )
        for sentences in found.values():
            if self.context == "document" and len(set(sentences.documents)) == 1:
                print(f"{sentences.path} is one document, for no -DOCSTART- parts it")

    def label_names(self, train: Sentences) -> tuple[str, ...]:
        """Names of the labels."""
        return self.labels or tuple(sorted({x for row in train.labels for x in row}))

    def _read(self) -> Sentences:
        return conll.read(self.train, Columns(self.token, self.label, self.labels))

    def _rows(self, sentences, tokenizer, labels=()) -> WordRows:
        documents = sentences.documents
        if self.context == "sentence":
            documents = list(range(len(sentences)))
        return rows_of(sentences, documents, tokenizer, labels, self.max_length)
