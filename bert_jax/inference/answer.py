"""The verb `answer`: where in a context the answer to a question is."""

import functools
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from flax import linen as nn

from bert_jax.data import qa_windows
from bert_jax.data.qa_windows import QAFeatures, WindowConfig
from bert_jax.inference import batching, jitted, span_decoding
from bert_jax.models import SpanClassifier
from bert_jax.tokenizers import Tokenizer
from bert_jax.tokenizers.text import listed, refuse_surrogates

# In a model's `extra` and so in config.json: the odds above which there is no answer,
# and how windows were cut in training, where that is not the default.
THRESHOLD = "null_threshold"
CUTTING = ("doc_stride", "max_query")


def answered(
    head: nn.Module,
    params: Any,
    tokenizer: Tokenizer,
    question: str | Sequence[str],
    context: str | Sequence[str],
    *,
    k: int | None,
    threshold: float | None,
    extra: Mapping[str, Any],
    longest: int,
    batch_size: int,
    strict: bool,
    progress: bool,
) -> Any:
    """See `Model.answer`; `longest` is that of a row."""
    refuse_other_heads(head)
    asked, texts = _pairs(question, context)
    _refuse_outside(k, batch_size)
    if threshold is None:
        threshold = _number(extra, THRESHOLD, float)
    cutting = WindowConfig(longest, *(_number(extra, name, int) for name in CUTTING))
    reading = _read(tokenizer, asked, texts, cutting, strict)
    logits = _logits(head, params, tokenizer, reading, longest, batch_size, progress)
    found = []
    for each in span_decoding.decode_all(
        texts, reading, logits, null=threshold is not None
    ):
        best = each.chosen(threshold)
        found.append(best[0] if k is None else best[:k])
    return found[0] if isinstance(question, str) else found


def refuse_other_heads(head: nn.Module) -> None:
    """Raises ValueError unless `head` says where answers start and end."""
    if not isinstance(head, SpanClassifier):
        raise ValueError(
            f"this model finds no answers, its head is a {type(head).__name__}; make "
            'one with bert_jax.finetune(model, "answer", train=..., dev=...)'
        )


def _pairs(
    question: str | Sequence[str], context: str | Sequence[str]
) -> tuple[list[str], list[str]]:
    asked, texts = listed(question, "question"), listed(context, "context")
    if isinstance(question, str) != isinstance(context, str):
        raise ValueError(
            "one of question and context is a string, the other is not; give one of "
            "each, or two lists"
        )
    if len(asked) != len(texts):
        raise ValueError(
            f"{len(asked)} questions came with {len(texts)} contexts; give one context "
            "for each question"
        )
    return asked, texts


def _number(extra, name, kind):
    """What a model says under a name, or None."""
    found = extra.get(name)
    if found is None or isinstance(found, int | kind):
        return found
    raise ValueError(f"{name}={found!r:.60} in config.json is no number; mend it")


def _refuse_outside(k, batch_size):
    if k is not None and not 1 <= k <= span_decoding.N_BEST:
        raise ValueError(f"k={k} is not between 1 and {span_decoding.N_BEST} answers")
    if batch_size < 1:
        raise ValueError(f"batch_size={batch_size}; it must be at least 1")


def _read(tokenizer, asked, texts, cutting, strict) -> QAFeatures:
    """All windows; a question that had to be cut is told, or refused."""
    if strict:
        refuse_surrogates([*asked, *texts])
    reading = qa_windows.read(tokenizer, asked, texts, cutting)
    if reading.cut and strict:
        raise ValueError(
            f"{reading.cut} of {len(asked)} questions are longer than {cutting.query} "
            "tokens; shorten them, or load without strict"
        )
    if reading.cut:
        said = f"cut {reading.cut} of {len(asked)} questions to {cutting.query} tokens"
        warnings.warn(said, stacklevel=4)
    return reading


def _logits(
    head,
    params,
    tokenizer,
    reading: QAFeatures,
    longest: int,
    batch_size: int,
    progress: bool,
) -> list[np.ndarray]:
    """Logits `[L, 2]` of each window."""
    count = len(reading.windows)
    found: list[Any] = [None] * count
    if not count:
        return found
    rows = qa_windows.rows_of(reading.windows, tokenizer, longest)
    length = batching.bucket(int(rows.lengths.max()), longest)
    batch = rows.gather(np.arange(count), length)
    jitted.check_ids(batch, head.encoder.config)
    step = functools.partial(jitted.outputs, head, params)
    size = min(batch_size, batching.power_of_two(count))
    with batching.bar_of(count, "windows", progress) as bar:
        for answer in batching.run(step, batch, size, longest):
            for row, logits in zip(answer.rows, answer.output, strict=True):
                found[row] = logits
            bar.update(len(answer.rows))
    return found
