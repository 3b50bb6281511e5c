"""Fine-tuning to find answers in texts, as in SQuAD 1.1 and 2.0."""

import dataclasses
import json
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

from bert_jax import metrics
from bert_jax.data import qa_windows, squad
from bert_jax.data.qa_windows import QAFeatures, WindowConfig
from bert_jax.data.ragged import RaggedRows
from bert_jax.data.squad import Question
from bert_jax.inference import span_decoding
from bert_jax.inference.answer import THRESHOLD, WINDOW_FIELDS
from bert_jax.inference.model import Model
from bert_jax.inference.span_decoding import SpanPredictions
from bert_jax.models import heads
from bert_jax.objectives.losses import Totals, throughput_totals
from bert_jax.tasks import fine_tuning
from bert_jax.tasks.demo import next_steps
from bert_jax.tasks.fine_tuning import FineTuningConfig
from bert_jax.tokenizers import Tokenizer


class QAExamples(NamedTuple):
    """Questions and the windows they are read in."""

    questions: list[Question]
    reading: QAFeatures

    @property
    def is_labelled(self) -> bool:
        """Whether all answers are known."""
        return all(x.answers is not None for x in self.questions)


def cut(
    questions: list[Question], tokenizer: Tokenizer, cutting: WindowConfig
) -> QAExamples:
    """Questions cut into windows."""
    asked, contexts = [x.question for x in questions], [x.context for x in questions]
    return QAExamples(questions, qa_windows.read(tokenizer, asked, contexts, cutting))


def rows_of(exam: QAExamples, tokenizer: Tokenizer, max_length: int) -> RaggedRows:
    """Windows as rows, with `targets` `[N, 2]`: where the first answer is.

    [0, 0], which is [CLS], stands for no answer in this window, and -1 for one that is
    not known.
    """
    targets = [
        _target(window, exam.reading.spans[window.question], question.answers)
        for window in exam.reading.windows
        for question in [exam.questions[window.question]]
    ]
    columns = {"targets": np.array(targets, np.int32).reshape(-1, 2)}
    return qa_windows.rows_of(exam.reading.windows, tokenizer, max_length, **columns)


def _target(window, pieces, answers):
    if answers is None:
        return [-1, -1]
    if not answers:
        return [0, 0]
    text, start = answers[0]
    return qa_windows.target(window, pieces, (start, start + len(text)))


@dataclasses.dataclass(frozen=True)
class AnsweringTask(fine_tuning.FineTuningTask):
    """Answering with its rows at hand.

    Attributes:
      exams: questions and windows by split.
      cutting: how windows are cut.
      may_be_none: whether there are questions without an answer.
      found: `threshold`, once the held-out questions have been scored.
    """

    exams: Mapping[str, QAExamples]
    cutting: WindowConfig
    may_be_none: bool
    found: dict[str, float] = dataclasses.field(default_factory=dict)

    head = heads.SpanClassifier
    output = "span"

    @property
    def fields(self) -> dict[str, Any]:
        """None: every head of this kind is alike."""
        return {}

    @property
    def threshold(self) -> float | None:
        """The odds above which nothing is answered; None: there always is an answer."""
        return self.found.get("threshold", 0.0) if self.may_be_none else None

    def pretrained_params(self, init_from: str) -> dict[str, Any]:
        """Parameters to start from; those of another such head, too."""
        params = super().pretrained_params(init_from)
        if isinstance(self.start.head, self.head):
            params[self.output] = self.start.params[self.output]
        return params

    def totals(self, model, batch, logits) -> Totals:
        """See `totals_of`."""
        return totals_of(model, batch, logits)

    def comparable(self, logits, batch) -> tuple[jax.Array, jax.Array]:
        """Where answers start and end: `[B, 2, L]`, which all count."""
        logits = over_tokens(logits, batch["attention_mask"])
        return logits, jnp.ones(logits.shape[:2])

    def score(self, split: str, predictions: Mapping[str, Any]) -> dict[str, float]:
        """Official scores, in percent; none where the answers are not known.

        Those of SQuAD 2.0 are at the threshold that gives held-out questions the best
        F1; `exact_match` stands for `exact`.
        """
        exam = self.exams[split]
        if not exam.is_labelled:
            return {}
        found = self.decoded(split, predictions)
        right = {x.id: [text for text, _ in x.answers] for x in exam.questions}
        # Without a threshold there is an answer wherever there can be one.
        said = {key: x.chosen(None)[0].text for key, x in found.items()}
        if not self.may_be_none:
            return metrics.squad_1(right, said)
        odds = {key: x.null_odds for key, x in found.items()}
        if split == "eval":
            self.found["threshold"] = best_threshold(right, said, odds)
        scores = metrics.squad_2(right, said, odds, self.threshold)
        return {"exact_match": scores.pop("exact"), **scores}

    def decoded(self, split: str, predictions: Mapping) -> dict[str, SpanPredictions]:
        """What was found for each question, by its id."""
        questions, reading = self.exams[split]
        found = span_decoding.decode_all(
            [x.context for x in questions],
            reading,
            predictions["logits"],
            null=self.may_be_none,
        )
        return {x.id: each for x, each in zip(questions, found, strict=True)}

    def to_model(self, module: nn.Module, params: Any) -> Model:
        """The finished model; threshold and cutting travel in its config.json."""
        extra = {name: getattr(self.cutting, name) for name in WINDOW_FIELDS}
        extra[THRESHOLD] = self.threshold
        extra = {name: x for name, x in extra.items() if x is not None}
        return dataclasses.replace(super().to_model(module, params), extra=extra)

    def write_predictions(
        self, workdir: Path, split: str, predictions: Mapping[str, Any]
    ) -> None:
        """Writes predictions_<split>.json as SQuAD takes it, and the n best answers.

        The files are named as by Google's run_squad.py; null_odds_<split>.json is what
        the official script of SQuAD 2.0 takes as --na-prob-file.
        """
        found = self.decoded(split, predictions)
        content = {
            "predictions": {
                k: x.chosen(self.threshold)[0].text for k, x in found.items()
            },
            "nbest_predictions": {k: _listed(x) for k, x in found.items()},
        }
        if self.may_be_none:
            content["null_odds"] = {k: x.null_odds for k, x in found.items()}
        directory = workdir / "predictions"
        directory.mkdir(exist_ok=True)
        for name, value in content.items():
            text = json.dumps(value, indent=4) + "\n"
            (directory / f"{name}_{split}.json").write_text(text)

    def demo(self, model: Model, workdir: Path) -> str:
        """The first held-out question with its answer."""
        first = self.exams["eval"].questions[0]
        found = model.answer(first.question, first.context)
        return f"\nheld out: {first.question!r}\n  {found}"

    def next_steps(self, workdir: Path) -> str:
        """The model's directory and a command to try."""
        return next_steps(workdir, "answer('Who wrote it?', 'Ada wrote it.')")


def best_threshold(
    right: Mapping[str, Sequence[str]],
    said: Mapping[str, str],
    odds: Mapping[str, float],
) -> float:
    """The odds above which to answer nothing, so that F1 is best.

    It lies between two questions: at the odds of one of them, as the official script
    has it, the last digits of a logit would decide.
    """
    best = metrics.squad_2(right, said, odds)
    silent = 100.0 * sum(not texts for texts in right.values()) / len(right)
    answers_some = best["best_f1"] > silent
    lower = best["best_f1_thresh"] if answers_some else min(odds.values()) - 1
    upper = min((x for x in odds.values() if x > lower), default=lower + 1)
    return (lower + upper) / 2


def _listed(found: SpanPredictions) -> list[dict[str, Any]]:
    """The n best answers as Google's file holds them."""
    return [
        {
            "text": each.text,
            "probability": float(probability),
            "start_logit": each.start_logit,
            "end_logit": each.end_logit,
        }
        for each, probability in zip(found.best, found.probabilities, strict=True)
    ]


def over_tokens(logits: jax.Array, attention_mask: jax.Array) -> jax.Array:
    """`[B, L, 2]` -> `[B, 2, L]`, hopeless for padding, which is no choice."""
    return jnp.where(attention_mask[..., None] > 0, logits, -1e9).swapaxes(1, 2)


def totals_of(
    model: nn.Module, batch: Mapping[str, jax.Array], logits: jax.Array
) -> Totals:
    """Sums and counts: loss, tokens and flops.

    The loss is the mean of two cross-entropies over the tokens of the row, of where the
    answer starts and of where it ends; padding is no choice.
    """
    targets, mask = batch["targets"], batch["attention_mask"]
    valid = batch.get("valid", jnp.ones(len(targets), bool))
    weights = (valid & (targets[:, 0] >= 0)).astype(jnp.float32)
    losses = optax.softmax_cross_entropy_with_integer_labels(
        over_tokens(logits, mask), jnp.maximum(targets, 0)
    ).mean(1)
    seen = mask * valid[:, None]
    return {
        "loss": ((losses * weights).sum(), weights.sum()),
        **throughput_totals(model.encoder.config, seen, jnp.zeros(())),
    }


@dataclasses.dataclass
class AnsweringConfig(FineTuningConfig):
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
    >>> AnsweringConfig(train="questions.jsonl", dev="questions.jsonl").count()
    1
    """

    max_length: int = 384
    doc_stride: int | None = None
    max_query: int | None = None

    files: ClassVar[str] = "SQuAD's .json, or a .jsonl file"

    def read(
        self, path: str, like: Any = None, labelled: bool = True
    ) -> list[Question]:
        """The questions of a file; an epoch counts them, not their windows."""
        return squad.read(path, labelled=labelled)

    def prepare(self, workdir: Path, encoder: Any, seed: int) -> AnsweringTask:
        """All files read, checked and cut into windows."""
        files, content = self.splits(), self.content
        start, tokenizer = self.start(encoder)
        cutting = WindowConfig(self.max_length, self.doc_stride, self.max_query)
        exams = {split: cut(x, tokenizer, cutting) for split, x in content.items()}
        may_be_none = any(squad.has_unanswerable(x) for x in content.values())
        _say(files, exams, cutting)
        return AnsweringTask(
            rows={
                split: rows_of(exam, tokenizer, self.max_length)
                for split, exam in exams.items()
            },
            labels=(),
            metrics=("f1", "exact_match"),
            tokenizer=tokenizer,
            max_length=self.max_length,
            start=start,
            content=content,
            teacher=self.loaded_teacher,
            exams=exams,
            cutting=cutting,
            may_be_none=may_be_none,
        )


def _say(
    files: Mapping[str, str], exams: Mapping[str, QAExamples], cutting: WindowConfig
) -> None:
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


def _counted(exam: QAExamples) -> str:
    """How many questions and windows there are."""
    return f"{len(exam.questions):,} questions in {len(exam.reading.windows):,} windows"
