"""Questions on long texts, in windows that a model can read (Google's run_squad.py)."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.data.ragged import RaggedRows
from bert_jax.tokenizers import Tokenizer
from bert_jax.tokenizers.rows import Slot

# So many texts are tokenized together.
CHUNK = 1024


@dataclasses.dataclass(frozen=True)
class WindowConfig:
    """Sizes of rows and windows, in tokens.

    Attributes:
      max_length: of a row.
      doc_stride: from the start of a window to that of the next; None takes 128, or a
        third of `max_length` if that is less, so that windows overlap.
      max_query: the most tokens of a question; None takes 64, or likewise a third.
    """

    max_length: int
    doc_stride: int | None = None
    max_query: int | None = None

    @property
    def stride(self) -> int:
        """`doc_stride`, or its default."""
        return self.doc_stride or max(1, min(128, self.max_length // 3))

    @property
    def query(self) -> int:
        """`max_query`, or its default."""
        return self.max_query or max(1, min(64, self.max_length // 3))

    def check(self, specials: int) -> None:
        """Raises ValueError unless a row holds a question and some of a context."""
        for name in ("doc_stride", "max_query"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise ValueError(
                    f"{name}={getattr(self, name)}; it must be at least 1, or None"
                )
        if self.max_length <= self.query + specials:
            raise ValueError(
                f"max_length={self.max_length} leaves no room for a context beside "
                f"{specials} special tokens and max_query={self.query}; raise it"
            )


class Window(NamedTuple):
    """One row: a question and a part of its context.

    Attributes:
      question: its number.
      input_ids, token_type_ids: `[L]`.
      first: the position in the row where the context begins.
      start, length: the range of its pieces among those of the context.
    """

    question: int
    input_ids: np.ndarray
    token_type_ids: np.ndarray
    first: int
    start: int
    length: int


class QAFeatures(NamedTuple):
    """Questions cut into windows.

    Attributes:
      windows: of all questions, in their order.
      spans: for each question the characters of its context's pieces, `[T, 2]`.
      cut: the number of questions longer than `max_query`.
    """

    windows: list[Window]
    spans: list[np.ndarray]
    cut: int

    def by_question(self) -> list[list[int]]:
        """The numbers of the windows of each question."""
        numbers: list[list[int]] = [[] for _ in self.spans]
        for number, window in enumerate(self.windows):
            numbers[window.question].append(number)
        return numbers


def read(
    tokenizer: Tokenizer,
    questions: Sequence[str],
    contexts: Sequence[str],
    config: WindowConfig,
) -> QAFeatures:
    """Cuts N questions, each on its context, into windows.

    Literals like `[SEP]` are plain text, as in Google's code. A context without any
    piece has one window, which holds none.
    """
    slots = tokenizer.layout(2)
    specials = len(slots) - 2
    config.check(specials)
    # Many questions are on the same context.
    pieces = _pieces(tokenizer, list(dict.fromkeys(contexts)))
    queries = _pieces(tokenizer, list(dict.fromkeys(questions)))
    windows: list[Window] = []
    for number, (question, context) in enumerate(zip(questions, contexts, strict=True)):
        query, text = queries[question][0][: config.query], pieces[context][0]
        room = config.max_length - specials - len(query)
        for start in starts(len(text), room, config.stride):
            part = text[start : start + room]
            ids, types, first = _row(slots, query, part)
            windows.append(Window(number, ids, types, first, start, len(part)))
    cut = sum(len(queries[question][0]) > config.query for question in questions)
    return QAFeatures(windows, [pieces[context][1] for context in contexts], cut)


def starts(length: int, room: int, stride: int) -> list[int]:
    """The first pieces of windows of `room` pieces that together hold `length`."""
    result = [0]
    while result[-1] + room < length:
        result.append(result[-1] + min(room, stride))
    return result


def _pieces(
    tokenizer: Tokenizer, texts: Sequence[str]
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Ids `[T]` and character spans `[T, 2]` of each text's pieces."""
    pieces = []
    for start in range(0, len(texts), CHUNK):
        for ids, spans in tokenizer.encode_spans(texts[start : start + CHUNK]):
            located = np.array(spans, np.int32)
            pieces.append((np.array(ids, np.int32), located.reshape(-1, 2)))
    return dict(zip(texts, pieces, strict=True))


def _row(
    slots: Sequence[Slot], *parts: np.ndarray
) -> tuple[np.ndarray, np.ndarray, int]:
    """Ids and types of one row, and the position where its second sequence begins."""
    ids: list[np.ndarray] = []
    types: list[np.ndarray] = []
    first = 0
    for slot in slots:
        new = [slot.token_id] if slot.sequence is None else parts[slot.sequence]
        if slot.sequence == 1:
            first = sum(len(part) for part in ids)
        ids.append(np.asarray(new, np.int32))
        types.append(np.full(len(new), slot.type_id, np.int32))
    return np.concatenate(ids), np.concatenate(types), first


def rows_of(
    windows: Sequence[Window],
    tokenizer: Tokenizer,
    max_length: int,
    **columns: np.ndarray,
) -> RaggedRows:
    """Windows as rows for the model, with `columns` `[N, ...]`."""
    return RaggedRows(
        {
            "input_ids": [window.input_ids for window in windows],
            "token_type_ids": [window.token_type_ids for window in windows],
        },
        fill={"input_ids": tokenizer.pad_id, "token_type_ids": 0},
        columns=columns,
        max_length=max_length,
    )


def target(window: Window, spans: np.ndarray, answer: tuple[int, int]) -> list[int]:
    """The position of an answer in a window: `[first token, last token]`.

    These are the tokens that share a character with it. [0, 0], the first token of the
    row, marks an answer that is not wholly in the window.

    Args:
      window: the row.
      spans: `[T, 2]`, see `QAFeatures`.
      answer: its characters in the context, the end exclusive.
    """
    start, end = answer
    touched = np.flatnonzero((spans[:, 1] > start) & (spans[:, 0] < end))
    if not len(touched):
        return [0, 0]
    first, last = touched[[0, -1]] - window.start
    if first < 0 or last >= window.length:
        return [0, 0]
    return [int(window.first + first), int(window.first + last)]


def owners(windows: Sequence[Window], pieces: int) -> np.ndarray:
    """The window in which each piece of a context has the most context, `[T]`.

    Its context is the smaller of the pieces left and right of it; on a tie the longer
    window is chosen, or else the earlier one.
    """
    places = np.arange(pieces)
    scores = np.full((len(windows), pieces), -np.inf)
    for row, window in zip(scores, windows, strict=True):
        left = places - window.start
        right = window.start + window.length - 1 - places
        inside = (left >= 0) & (right >= 0)
        score = np.minimum(left, right) + 0.01 * window.length
        row[inside] = score[inside]
    return scores.argmax(0)
