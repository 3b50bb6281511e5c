"""Fine-tuning to find answers in texts, as in SQuAD 1.1 and 2.0."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

from bert_jax import files, metrics
from bert_jax.data import qa_windows, squad
from bert_jax.data.qa_windows import QAFeatures, Window, WindowConfig
from bert_jax.data.ragged import RaggedRows
from bert_jax.data.squad import Answer, Question
from bert_jax.files import counted
from bert_jax.inference import span_decoding
from bert_jax.inference.answer import THRESHOLD, WINDOW_FIELDS
from bert_jax.inference.model import Model
from bert_jax.inference.span_decoding import Span, SpanPredictions
from bert_jax.models import heads
from bert_jax.models.config import EncoderConfig
from bert_jax.objectives.losses import Batch, Params, Totals, throughput_totals
from bert_jax.tasks import fine_tuning
from bert_jax.tasks.demo import Call, excerpt, next_steps
from bert_jax.tasks.fine_tuning import FineTuningConfig
from bert_jax.tokenizers import Tokenizer


class QAExamples(NamedTuple):
    """Questions and their windows."""

    questions: list[Question]
    features: QAFeatures

    @property
    def is_labelled(self) -> bool:
        """True if all answers are known."""
        return all(x.answers is not None for x in self.questions)


def make_examples(
    questions: list[Question], tokenizer: Tokenizer, config: WindowConfig
) -> QAExamples:
    """Questions with their contexts cut into windows."""
    texts, contexts = [x.question for x in questions], [x.context for x in questions]
    return QAExamples(questions, qa_windows.read(tokenizer, texts, contexts, config))


def rows_of(examples: QAExamples, tokenizer: Tokenizer, max_length: int) -> RaggedRows:
    """Windows as rows, with `targets` `[N, 2]`: start and end of the first answer.

    [0, 0], the position of [CLS], means that the window has no answer, and [-1, -1]
    that the answer is not known.
    """
    targets = [
        _target(window, examples.features.spans[window.question], question.answers)
        for window in examples.features.windows
        for question in [examples.questions[window.question]]
    ]
    columns = {"targets": np.array(targets, np.int32).reshape(-1, 2)}
    return qa_windows.rows_of(
        examples.features.windows, tokenizer, max_length, **columns
    )


def _target(
    window: Window, pieces: np.ndarray, answers: tuple[Answer, ...] | None
) -> list[int]:
    if answers is None:
        return [-1, -1]
    if not answers:
        return [0, 0]
    text, start = answers[0]
    return qa_windows.target(window, pieces, (start, start + len(text)))


@dataclasses.dataclass(frozen=True)
class AnsweringTask(fine_tuning.FineTuningTask[RaggedRows]):
    """Question answering with its rows.

    Attributes:
      examples: questions and windows by split.
      windows: the settings of windows.
      may_be_none: True if there are questions without an answer.
      tuned: `threshold`, after the held-out questions have been scored.
    """

    examples: Mapping[str, QAExamples]
    windows: WindowConfig
    may_be_none: bool
    tuned: dict[str, float] = dataclasses.field(default_factory=dict)

    head = heads.SpanClassifier
    output = "span"

    @property
    def fields(self) -> dict[str, Any]:
        """Fields of the head: none."""
        return {}

    @property
    def threshold(self) -> float | None:
        """The difference of logits above which there is no answer; None: there is one.

        The logit of "no answer" less that of the best answer, as `null_odds` is.
        """
        return self.tuned.get("threshold", 0.0) if self.may_be_none else None

    def pretrained_params(self, init_from: str) -> dict[str, Any]:
        """Parameters of the encoder, and of a head of the same kind."""
        params, start = super().pretrained_params(init_from), self.check_start()
        if isinstance(start.head, self.head):
            params[self.output] = start.params[self.output]
        return params

    def totals(self, model: nn.Module, batch: Batch, logits: jax.Array) -> Totals:
        """See `span_totals`."""
        return span_totals(model, batch, logits)

    def comparable(
        self, logits: jax.Array, batch: Batch
    ) -> tuple[jax.Array, jax.Array]:
        """Logits `[B, 2, L]` of starts and ends, and weights of 1."""
        logits = over_tokens(logits, batch["attention_mask"])
        return logits, jnp.ones(logits.shape[:2])

    def score(self, split: str, predictions: Mapping[str, Any]) -> dict[str, float]:
        """Official scores in percent; {} if the answers are not known.

        Those of SQuAD 2.0 are at the threshold that gives held-out questions the best
        F1; `exact_match` stands for `exact`.
        """
        split_examples = self.examples[split]
        if not split_examples.is_labelled:
            return {}
        spans = self.decode(split, predictions)
        answers = {
            x.id: [text for text, _ in x.answers or ()]
            for x in split_examples.questions
        }
        # The best answer of each question, without a threshold.
        predicted = {key: x.chosen(None)[0].text for key, x in spans.items()}
        if not self.may_be_none:
            return metrics.squad_1(answers, predicted)
        odds = {key: x.null_odds for key, x in spans.items()}
        if split == "eval":
            self.tuned["threshold"] = best_threshold(answers, predicted, odds)
        scores = metrics.squad_2(answers, predicted, odds, self.threshold or 0.0)
        return {"exact_match": scores.pop("exact"), **scores}

    def constant_score(self, split: str) -> float:
        """The score of no answer to any question, in percent."""
        questions = self.examples[split].questions
        return 100.0 * sum(not x.answers for x in questions) / len(questions)

    def decode(
        self, split: str, predictions: Mapping[str, Any]
    ) -> dict[str, SpanPredictions]:
        """The predicted spans of each question, by its id."""
        questions, features = self.examples[split]
        spans = span_decoding.decode_all(
            [x.context for x in questions],
            features,
            predictions["logits"],
            null=self.may_be_none,
        )
        return {x.id: each for x, each in zip(questions, spans, strict=True)}

    def to_model(self, module: nn.Module, params: Params) -> Model:
        """The finished model; its config.json has the threshold and the windows."""
        extra = {name: getattr(self.windows, name) for name in WINDOW_FIELDS}
        extra[THRESHOLD] = self.threshold
        extra = {name: x for name, x in extra.items() if x is not None}
        model = super().to_model(module, params)
        return dataclasses.replace(model, extra={**model.extra, **extra})

    def write_predictions(
        self, workdir: Path, split: str, predictions: Mapping[str, Any]
    ) -> None:
        """Writes predictions_<split>.json in SQuAD's format, and the n best answers.

        Files have the names of Google's run_squad.py; null_odds_<split>.json is the
        --na-prob-file of the official script of SQuAD 2.0.
        """
        spans = self.decode(split, predictions)
        content = {
            "predictions": {
                k: x.chosen(self.threshold)[0].text for k, x in spans.items()
            },
            "nbest_predictions": {k: _n_best(x) for k, x in spans.items()},
        }
        if self.may_be_none:
            content["null_odds"] = {k: x.null_odds for k, x in spans.items()}
        directory = workdir / "predictions"
        files.make_directory(directory)
        for name, value in content.items():
            text = json.dumps(value, indent=4) + "\n"
            files.write_text(directory / f"{name}_{split}.json", text)

    def demo(self, model: Model, workdir: Path) -> str:
        """The first held-out question with its answer."""
        first = self.examples["eval"].questions[0]
        # One question has one answer.
        answer = cast(Span, model.answer(first.question, first.context))
        lines = [f"held out: {first.question!r}"]
        if first.answers:
            lines += [f"  the answer is {first.answers[0].text!r}"]
        predicted = repr(answer.text) if answer.text else "no answer"
        lines += [f"  predicted: {predicted} ({answer.score:.0%})"]
        return "\n".join(["", *lines])

    def next_steps(self, workdir: Path, shell: bool) -> str:
        """The model's directory and a call to try."""
        first = self.examples["eval"].questions[0]
        start = first.answers[0].start if first.answers else 0
        context = excerpt(first.context, start)
        flags = ("--context", context)
        call = Call("answer", (first.question, context), first.question, None, flags)
        return next_steps(workdir, call, shell)


def best_threshold(
    answers: Mapping[str, Sequence[str]],
    predicted: Mapping[str, str],
    odds: Mapping[str, float],
) -> float:
    """The difference of logits above which no answer gives the best F1.

    It lies between the differences of two questions. At that of one of them, as in the
    official script, the last digits of a logit would decide.
    """
    best = metrics.squad_2(answers, predicted, odds)
    silent = 100.0 * sum(not texts for texts in answers.values()) / len(answers)
    answers_some = best["best_f1"] > silent
    lower = best["best_f1_thresh"] if answers_some else min(odds.values()) - 1
    upper = min((x for x in odds.values() if x > lower), default=lower + 1)
    return (lower + upper) / 2


def _n_best(spans: SpanPredictions) -> list[dict[str, Any]]:
    """The n best answers in the format of Google's file."""
    return [
        {
            "text": each.text,
            "probability": float(probability),
            "start_logit": each.start_logit,
            "end_logit": each.end_logit,
        }
        for each, probability in zip(spans.best, spans.probabilities, strict=True)
    ]


def over_tokens(logits: jax.Array, attention_mask: jax.Array) -> jax.Array:
    """`[B, L, 2]` -> `[B, 2, L]`, very low for padding."""
    return jnp.where(attention_mask[..., None] > 0, logits, -1e9).swapaxes(1, 2)


def span_totals(model: nn.Module, batch: Batch, logits: jax.Array) -> Totals:
    """Sums and counts: loss, tokens and flops.

    The loss is the mean of two cross-entropies over the tokens of the row, those of the
    start and of the end of the answer; padding has no probability.
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
class AnsweringConfig(FineTuningConfig[list[Question]]):
    """Questions with contexts that contain the answer, as a recipe describes it.

    If the files have questions without an answer, as in SQuAD 2.0, the model may answer
    nothing.

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
        self,
        path: str,
        like: list[Question] | None = None,
        labelled: bool = True,
    ) -> list[Question]:
        """The questions of a file; an epoch counts them, not their windows."""
        return squad.read(path, labelled=labelled)

    def prepare(
        self, workdir: Path, encoder: EncoderConfig, seed: int
    ) -> AnsweringTask:
        """Reads all files, checks them and cuts them into windows."""
        files, content = self.splits(), self.content
        start, tokenizer = self.start(encoder)
        windows = WindowConfig(self.max_length, self.doc_stride, self.max_query)
        examples = {
            split: make_examples(x, tokenizer, windows) for split, x in content.items()
        }
        may_be_none = any(squad.has_unanswerable(x) for x in content.values())
        _describe(files, examples, windows)
        return AnsweringTask(
            rows={
                split: rows_of(split_examples, tokenizer, self.max_length)
                for split, split_examples in examples.items()
            },
            labels=(),
            metrics=("f1", "exact_match"),
            tokenizer=tokenizer,
            max_length=self.max_length,
            start=start,
            content=content,
            teacher=self.loaded_teacher,
            examples=examples,
            windows=windows,
            may_be_none=may_be_none,
        )


def _describe(
    files: Mapping[str, str], examples: Mapping[str, QAExamples], windows: WindowConfig
) -> None:
    """Prints the size of the data; warns of held-out questions in `train`."""
    train, dev = examples["train"].questions, examples["eval"].questions
    same = squad.overlap(train, dev)
    rows = counted(len(dev), "question")
    fine_tuning.warn_of_overlap(same, f"{rows} of {files['eval']}", files["train"])
    parts = [
        f"{_count(examples['train'])} to train on",
        f"{_count(examples['eval'])} held out",
    ]
    cut = sum(split_examples.features.cut for split_examples in examples.values())
    if cut:
        parts.append(f"{cut:,} cut to {windows.query} tokens")
    print(", ".join(parts))


def _count(examples: QAExamples) -> str:
    """The numbers of questions and windows."""
    windows = counted(len(examples.features.windows), "window")
    return f"{counted(len(examples.questions), 'question')} in {windows}"
