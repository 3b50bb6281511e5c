"""Answers from logits, as Google's run_squad.py finds them: the n best spans.

Texts are slices of the context, by the characters that each token came from.
"""

import unicodedata
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.data.qa_windows import QAFeatures, Window, owners

# As in Google's code.
N_BEST = 20
MAX_ANSWER = 30


class Span(NamedTuple):
    """An answer: its text, its characters in the context, and its probability.

    For no answer, the text is empty and both characters are 0.

    >>> reader.answer("a b", "c d e f")._fields
    ('text', 'start', 'end', 'score')
    """

    text: str
    start: int
    end: int
    score: float


class Candidate(NamedTuple):
    """A span with the logits of its first and last token; empty text for no answer."""

    text: str
    start: int
    end: int
    start_logit: float
    end_logit: float

    @property
    def logit(self) -> float:
        """The sum over both tokens."""
        return self.start_logit + self.end_logit


class SpanPredictions(NamedTuple):
    """The candidates for one question.

    Attributes:
      best: candidates, the likeliest first; "no answer" can be one of them.
      probabilities: one for each candidate; they sum to 1.
      null_odds: the logit of "no answer" less that of the best candidate with a text.
    """

    best: list[Candidate]
    probabilities: np.ndarray
    null_odds: float

    def chosen(self, threshold: float | None) -> list[Span]:
        """All candidates as answers, with the final answer first.

        That is the best one with a text; or no answer, where `null_odds` are above
        `threshold`. With None it is a text wherever there is one.
        """
        spans = [
            Span(c.text, c.start, c.end, float(p))
            for c, p in zip(self.best, self.probabilities, strict=True)
        ]
        empty = threshold is not None and self.null_odds > threshold
        # Sorting is stable: the others stay in their order.
        first = next((x for x in spans if bool(x.text) != empty), spans[0])
        return sorted(spans, key=lambda span: span is not first)


# The odds of "no answer" where there is no other candidate.
CERTAIN = 1e6


def decode(
    context: str,
    spans: np.ndarray,
    windows: Sequence[Window],
    logits: Sequence[np.ndarray],
    *,
    null: bool,
    n_best: int = N_BEST,
    max_answer: int = MAX_ANSWER,
) -> SpanPredictions:
    """The best answers to one question.

    A span starts at one of the `n_best` tokens that are likeliest to start one, and
    ends likewise. It starts in the window where its first token has the most context,
    and has at most `max_answer` tokens. The score of "no answer" is that of the first
    token, in the window where it is the least.

    Args:
      context: the text that holds the answer.
      spans: the characters of its pieces, `[T, 2]`.
      windows: the windows of the question.
      logits: `[L, 2]` of each window; those of padding are not read.
      null: True makes "no answer" one of the candidates.
      n_best, max_answer: see above; at most `n_best` candidates are returned.
    """
    logits = [np.asarray(x, np.float64) for x in logits]
    least = min((x[0] for x in logits), key=lambda x: x[0] + x[1])
    nothing = Candidate("", 0, 0, *map(float, least))
    owner = owners(windows, len(spans))
    # Where bad logits leave nothing, every token may start and end an answer.
    for limit in (n_best, max(map(len, logits))):
        pairs = [
            _pairs(window, x, owner == number, limit, max_answer)
            for number, (window, x) in enumerate(zip(windows, logits, strict=True))
        ]
        best = _distinct(context, spans, np.concatenate(pairs), n_best)
        if best:
            break
    odds = nothing.logit - best[0].logit if best else CERTAIN
    if null or not best:
        best = _with_no_answer(best, nothing, n_best)
    return SpanPredictions(best, _softmax([c.logit for c in best]), odds)


def decode_all(
    contexts: Sequence[str],
    features: QAFeatures,
    logits: Sequence[np.ndarray],
    *,
    null: bool,
) -> Iterator[SpanPredictions]:
    """`decode` for each question; `logits` has an array for each window of all."""
    questions = zip(contexts, features.spans, features.by_question(), strict=True)
    for context, spans, rows in questions:
        windows = [features.windows[i] for i in rows]
        yield decode(context, spans, windows, [logits[i] for i in rows], null=null)


def _pairs(
    window: Window, logits: np.ndarray, owned: np.ndarray, n_best: int, max_answer: int
) -> np.ndarray:
    """First and last pieces of the context, and their logits, `[N, 4]`."""
    logits = logits[: len(window.input_ids)]
    first, last = (np.argsort(-x, kind="stable")[:n_best] for x in logits.T)
    positions = np.arange(len(logits))
    inside = (positions >= window.first) & (positions < window.first + window.length)
    may_start = inside.copy()
    may_start[inside] = owned[window.start : window.start + window.length]
    a, b = np.meshgrid(first, last, indexing="ij")
    fits = may_start[a] & inside[b] & (a <= b) & (b < a + max_answer)
    a, b = a[fits], b[fits]
    shift = window.start - window.first
    return np.stack([a + shift, b + shift, logits[a, 0], logits[b, 1]], 1)


def _distinct(
    context: str, spans: np.ndarray, pairs: np.ndarray, n_best: int
) -> list[Candidate]:
    """Candidates from `_pairs`, the likeliest first, each text once."""
    candidates: dict[str, Candidate] = {}
    for i in np.argsort(-(pairs[:, 2] + pairs[:, 3]), kind="stable"):
        first, last = pairs[i, :2].astype(int)
        start, end = trim(context, int(spans[first, 0]), int(spans[last, 1]))
        text = context[start:end]
        if text and text not in candidates:
            candidates[text] = Candidate(text, start, end, *map(float, pairs[i, 2:]))
        if len(candidates) == n_best:
            break
    return list(candidates.values())


def trim(context: str, start: int, end: int) -> tuple[int, int]:
    """The same characters without spaces around them, and with accents that follow.

    Pieces of some tokenizers include the space before them; others leave out combining
    marks, which belong to the letter before.
    """
    while end < len(context) and unicodedata.category(context[end]) == "Mn":
        end += 1
    while start < end and context[start].isspace():
        start += 1
    while start < end and context[end - 1].isspace():
        end -= 1
    return start, end


def _with_no_answer(
    best: list[Candidate], nothing: Candidate, n_best: int
) -> list[Candidate]:
    """Candidates with "no answer" among them by its logit, or last if it is low."""
    before = sum(c.logit >= nothing.logit for c in best)
    return [*best[:before], nothing, *best[before : max(before, n_best - 1)]]


def _softmax(logits: list[float]) -> np.ndarray:
    x = np.exp(np.array(logits) - max(logits))
    return x / x.sum()
