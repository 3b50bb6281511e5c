"""Fine-tuning to find answers in texts, as in SQuAD 1.1 and 2.0."""

import dataclasses
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from bert_jax.data import squad
from bert_jax.tasks.answering_run import Exam, Prepared, cut, rows_of
from bert_jax.tasks.finetuned import FineTuning
from bert_jax.windows import Cutting


@dataclasses.dataclass
class Answering(FineTuning):
    """Questions on contexts that hold the answer, or not, as a config says it.

    Whether there may be no answer, as in SQuAD 2.0, is found in the files.

    Attributes:
      train, dev: SQuAD's .json, or .jsonl rows; `dev` is what is evaluated on.
      test: such files to predict; they need no answers.
      max_length: of a window in tokens.
      doc_stride: tokens from one window to the next; None: 128, or a third of
        `max_length` where that is less.
      max_query: tokens that stay of a question; None: 64, or likewise a third.

    >>> import json
    >>> row = {"id": "1", "question": "where ?", "context": "we ate at home"}
    >>> row["answers"] = {"text": ["at home"], "answer_start": [7]}
    >>> _ = Path("questions.jsonl").write_text(json.dumps(row))
    >>> Answering(train="questions.jsonl", dev="questions.jsonl").count()
    1
    """

    max_length: int = 384
    doc_stride: int | None = None
    max_query: int | None = None

    files: ClassVar[str] = "SQuAD's .json, or a .jsonl file"

    def count(self) -> int:
        """Questions in `train`, of which each may have several windows."""
        return len(squad.read(self.train))

    def prepare(self, workdir: Path, encoder: Any, seed: int) -> Prepared:
        """All files read, checked and cut into windows."""
        files = self.splits()
        found = {
            split: squad.read(file, labelled=split in ("train", "eval"))
            for split, file in files.items()
        }
        start, tokenizer = self.start(encoder)
        cutting = Cutting(self.max_length, self.doc_stride, self.max_query)
        exams = {split: cut(x, tokenizer, cutting) for split, x in found.items()}
        may_be_none = any(squad.has_unanswerable(x) for x in found.values())
        _say(files, exams, cutting)
        return Prepared(
            sources={
                split: rows_of(exam, tokenizer, self.max_length)
                for split, exam in exams.items()
            },
            labels=(),
            metrics=("f1", "exact_match"),
            tokenizer=tokenizer,
            max_length=self.max_length,
            start=start,
            files=tuple(files.values()),
            lesson=self.lesson,
            exams=exams,
            cutting=cutting,
            may_be_none=may_be_none,
        )


def _say(files: Mapping[str, str], exams: Mapping[str, Exam], cutting: Cutting) -> None:
    """What there is to learn from, and whether it is too easy to score."""
    train, dev = exams["train"].questions, exams["eval"].questions
    same = squad.overlap(train, dev)
    if same:
        warnings.warn(
            f"{same} of the {len(dev)} questions of {files['eval']} stand in "
            f"{files['train']} too, so scores on them are too good",
            stacklevel=3,
        )
    said = [
        f"{_counted(exams['train'])} to train on",
        f"{_counted(exams['eval'])} held out",
    ]
    cut = sum(exam.reading.cut for exam in exams.values())
    if cut:
        said.append(f"{cut:,} cut to {cutting.query} tokens")
    print(", ".join(said))


def _counted(exam: Exam) -> str:
    """How many questions and windows there are."""
    return f"{len(exam.questions):,} questions in {len(exam.reading.windows):,} windows"
