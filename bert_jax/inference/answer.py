"""`Model.answer`: the answer to a question, as a slice of a context."""

import functools
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from flax import linen as nn

from bert_jax.data import qa_windows
from bert_jax.data.qa_windows import QAFeatures, WindowConfig
from bert_jax.files import counted
from bert_jax.inference import batching, checks, jitted, span_decoding
from bert_jax.inference.span_decoding import Span
from bert_jax.models import SpanClassifier
from bert_jax.pretrained.config_json import ABOUT_ANSWERS
from bert_jax.tokenizers.text import check_surrogates, listed

if TYPE_CHECKING:
    from bert_jax.inference.model import Model

# In a model's `extra` and so in config.json: the difference of logits, "no answer" less
# the best answer, above which there is no answer, and the windows of its training where
# they are not the default.
THRESHOLD, WINDOW_FIELDS = ABOUT_ANSWERS[0], ABOUT_ANSWERS[1:]

# The answer to one question, or its best answers.
Answer = Span | list[Span]


def answer(
    model: "Model",
    question: str | Sequence[str],
    context: str | Sequence[str],
    k: int | None,
    null_threshold: float | None,
    batch_size: int,
) -> Answer | list[Answer]:
    """See `Model.answer`."""
    check_head(model.head)
    questions, contexts = _pairs(question, context)
    if k is not None and k not in range(1, span_decoding.N_BEST + 1):
        raise ValueError(
            f"k={k!r:.60} is not between 1 and {span_decoding.N_BEST} answers"
        )
    checks.check_count("batch_size", batch_size)
    if null_threshold is None:
        null_threshold = _number(model.extra, THRESHOLD, float)
    features = _features(model, questions, contexts)
    logits = _logits(model, features, batch_size)
    answers: list[Answer] = []
    for predictions in span_decoding.decode_all(
        contexts, features, logits, null=null_threshold is not None
    ):
        spans = predictions.chosen(null_threshold)
        answers.append(spans[0] if k is None else spans[:k])
    return answers[0] if isinstance(question, str) else answers


def check_head(head: nn.Module) -> None:
    """Checks that `head` scores the start and the end of an answer."""
    checks.check_head(
        head,
        (SpanClassifier,),
        "answer questions",
        'train one with bert_jax.finetune(model, "answer", train=..., dev=...)',
    )


def _pairs(
    question: str | Sequence[str], context: str | Sequence[str]
) -> tuple[list[str], list[str]]:
    """Questions and as many contexts."""
    questions, contexts = listed(question, "question"), listed(context, "context")
    if isinstance(question, str) != isinstance(context, str):
        raise ValueError(
            "one of question and context is a string, the other is not; give one of "
            "each, or two lists"
        )
    if len(questions) != len(contexts):
        raise ValueError(
            f"{counted(len(questions), 'question')} came with "
            f"{counted(len(contexts), 'context')}; give one context for each question"
        )
    return questions, contexts


def _number(extra: Mapping[str, Any], name: str, kind: type) -> Any:
    """A number in config.json, or None."""
    value = extra.get(name)
    if value is None or isinstance(value, int | kind):
        return value
    raise ValueError(f"{name}={value!r:.60} in config.json is not a number; correct it")


def _features(model: "Model", questions: list[str], contexts: list[str]) -> QAFeatures:
    """All windows; questions that had to be cut give a warning, or an error."""
    if model.strict:
        check_surrogates([*questions, *contexts])
    fields = (_number(model.extra, name, int) for name in WINDOW_FIELDS)
    config = WindowConfig(model.max_length, *fields)
    features = qa_windows.read(model.check_tokenizer(), questions, contexts, config)
    if features.cut and model.strict:
        raise ValueError(
            f"longer than {config.query} tokens: {features.cut} of "
            f"{counted(len(questions), 'question')}; shorten them, or load without "
            "strict"
        )
    if features.cut:
        warnings.warn(
            f"cut {features.cut} of {counted(len(questions), 'question')} to "
            f"{config.query} tokens; shorten them",
            stacklevel=4,  # the line that called the model's method
        )
    return features


def _logits(model: "Model", features: QAFeatures, batch_size: int) -> list[np.ndarray]:
    """Logits `[L, 2]` of each window."""
    if not features.windows:
        return []
    rows = qa_windows.rows_of(
        features.windows, model.check_tokenizer(), model.max_length
    )
    step = functools.partial(jitted.outputs, model.head, model.params)
    logits: dict[int, np.ndarray] = {}
    for result in batching.run_rows(
        model, step, rows, batch_size=batch_size, unit="windows"
    ):
        logits.update(zip(result.rows, result.output, strict=True))
    return [logits[row] for row in range(len(rows))]
