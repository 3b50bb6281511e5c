"""Answers from logits: the n best spans, and whether there is one (run_squad.py).

Texts are slices of the context, found by the characters that each token came from.
"""

import unicodedata
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.data.qa_windows import QAFeatures, Window, owners

# Those of Google's code.
N_BEST = 20
MAX_ANSWER = 30


class Span(NamedTuple):
    """An answer: its text, its characters in the context, and how probable it is.

    The text is empty, and both characters are 0, where there is no answer.
    """

    text: str
    start: int
    end: int
    score: float


class Candidate(NamedTuple):
    """A span with the logits of its first and last token; no text: no answer."""

    text: str
    start: int
    end: int
    start_logit: float
    end_logit: float

    @property
    def logit(self) -> float:
        """Of both tokens together."""
        return self.start_logit + self.end_logit


class SpanPredictions(NamedTuple):
    """What was found for a question.

    Attributes:
      best: candidates, the likeliest first, "no answer" perhaps among them.
      probabilities: of these, which sum to 1.
      null_odds: by how much "no answer" is above the best candidate with a text.
    """

    best: list[Candidate]
    probabilities: np.ndarray
    null_odds: float

    def chosen(self, threshold: float | None) -> list[Span]:
        """All candidates as answers, the one that is given first.

        That is the best one with a text; or no answer, where `null_odds` are above
        `threshold`. None always answers, if there is anything to say.
        """
        spans = [
            Span(c.text, c.start, c.end, float(p))
            for c, p in zip(self.best, self.probabilities, strict=True)
        ]
        empty = threshold is not None and self.null_odds > threshold
        # Sorting is stable: what is not given stays in its order.
        first = next((x for x in spans if bool(x.text) != empty), spans[0])
        return sorted(spans, key=lambda span: span is not first)


# Stands for the odds of "no answer" where nothing else can be said.
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

    A span takes its start from the `n_best` tokens that are likeliest to start one, and
    its end likewise; it starts in the window where its first token has the most
    context, and is no longer than `max_answer` tokens. The score of "no answer" is that
    of the first token, in the window where it is the least.

    Args:
      context: where the answer is.
      spans: the characters of its pieces, `[T, 2]`.
      windows: the question's.
      logits: of each window, `[L, 2]`; those of padding are not read.
      null: whether "no answer" is one of the candidates.
      n_best, max_answer: see above; also so many candidates are kept.
    """
    logits = [np.asarray(x, np.float64) for x in logits]
    least = min((x[0] for x in logits), key=lambda x: x[0] + x[1])
    nothing = Candidate("", 0, 0, *map(float, least))
    owner = owners(windows, len(spans))
    # Where bad logits leave nothing, every token may start and end an answer.
    for kept in (n_best, max(map(len, logits))):
        pairs = [
            _pairs(window, x, owner == number, kept, max_answer)
            for number, (window, x) in enumerate(zip(windows, logits, strict=True))
        ]
        best = _distinct(context, spans, np.concatenate(pairs), n_best)
        if best:
            break
    odds = nothing.logit - best[0].logit if best else CERTAIN
    if null or not best:
        best = _with_nothing(best, nothing, n_best)
    return SpanPredictions(best, _softmax([c.logit for c in best]), odds)


def decode_all(
    contexts: Sequence[str],
    reading: QAFeatures,
    logits: Sequence[np.ndarray],
    *,
    null: bool,
) -> Iterator[SpanPredictions]:
    """`decode` for each question of a reading; `logits` are those of its windows."""
    pieces = zip(contexts, reading.spans, reading.by_question(), strict=True)
    for context, spans, rows in pieces:
        its = [reading.windows[i] for i in rows]
        yield decode(context, spans, its, [logits[i] for i in rows], null=null)


def _pairs(window, logits, owned, n_best, max_answer):
    """First and last pieces of the context, and their logits, `[N, 4]`."""
    logits = logits[: len(window.input_ids)]
    first, last = (np.argsort(-x, kind="stable")[:n_best] for x in logits.T)
    places = np.arange(len(logits))
    inside = (places >= window.first) & (places < window.first + window.length)
    may_start = inside.copy()
    may_start[inside] = owned[window.start : window.start + window.length]
    a, b = np.meshgrid(first, last, indexing="ij")
    fits = may_start[a] & inside[b] & (a <= b) & (b < a + max_answer)
    a, b = a[fits], b[fits]
    shift = window.start - window.first
    return np.stack([a + shift, b + shift, logits[a, 0], logits[b, 1]], 1)


def _distinct(context, spans, pairs, n_best):
    """Candidates from `_pairs`, the likeliest first, each text once."""
    found: dict[str, Candidate] = {}
    for i in np.argsort(-(pairs[:, 2] + pairs[:, 3]), kind="stable"):
        first, last = pairs[i, :2].astype(int)
        start, end = tight(context, int(spans[first, 0]), int(spans[last, 1]))
        text = context[start:end]
        if text and text not in found:
            found[text] = Candidate(text, start, end, *map(float, pairs[i, 2:]))
        if len(found) == n_best:
            break
    return list(found.values())


def tight(context: str, start: int, end: int) -> tuple[int, int]:
    """The same characters without blanks around them, and with accents that follow.

    Pieces of some tokenizers have the blank before them; others leave out combining
    marks, which belong to the letter before.
    """
    while end < len(context) and unicodedata.category(context[end]) == "Mn":
        end += 1
    while start < end and context[start].isspace():
        start += 1
    while start < end and context[end - 1].isspace():
        end -= 1
    return start, end


def _with_nothing(best, nothing, n_best):
    """Candidates with "no answer" in its place, or last where that is far behind."""
    before = sum(c.logit >= nothing.logit for c in best)
    return [*best[:before], nothing, *best[before : max(before, n_best - 1)]]


def _softmax(logits):
    x = np.exp(np.array(logits) - max(logits))
    return x / x.sum()
