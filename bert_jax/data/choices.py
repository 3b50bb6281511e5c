"""Questions with several choices from CSV, TSV and JSONL files, and rows of them."""

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence

import numpy as np

from bert_jax.data import tables
from bert_jax.data.choice_columns import ChoiceColumns, find
from bert_jax.data.ragged import RaggedRows
from bert_jax.data.tables import Problems

# What stands in published test sets instead of a label.
HIDDEN = "-1"


@dataclasses.dataclass(frozen=True)
class Questions:
    """A file's rows: contexts, what opens every choice, choices, and the right one.

    `openings` are "" where a choice stands alone; `labels` count from 0, None in a file
    without; `columns` says where all that was found, for a file of the same kind.
    """

    path: str
    contexts: list[str]
    openings: list[str]
    choices: list[list[str]]
    labels: list[int] | None
    lines: list[int]
    columns: ChoiceColumns

    def __len__(self) -> int:
        return len(self.contexts)


class ChoiceRows(RaggedRows):
    """N rows of C sequences each, random access by row; see `RaggedRows`.

    A row is as long as the longest of its sequences. Where a row has fewer than C, the
    others have no token.

    Args:
      each: the N * C sequences, those of a row behind each other.
      choices: C.
      columns: arrays `[N, ...]` that go along, one entry a row.
    """

    def __init__(
        self, each: RaggedRows, choices: int, columns: Mapping[str, np.ndarray]
    ):
        self.lengths = each.lengths.reshape(-1, choices).max(1)
        self.longest = each.longest
        self.columns = dict(columns)
        self._each, self._places = each, np.arange(choices)

    def gather(
        self, indices: np.ndarray, length: int | None = None
    ) -> dict[str, np.ndarray]:
        """Rows `indices` `[B]`: int32 sequences `[B, C, L]`, their mask, and columns.

        L is `length`, or else what the longest of them needs.
        """
        indices = np.asarray(indices)
        each = indices[:, None] * len(self._places) + self._places
        batch = self._each.gather(each.ravel(), length or self.padded(indices))
        batch = {name: x.reshape(*each.shape, -1) for name, x in batch.items()}
        return batch | {name: x[indices] for name, x in self.columns.items()}


def read(
    path: str | os.PathLike,
    columns: ChoiceColumns | None = None,
    labelled: bool = True,
) -> Questions:
    """Reads one file as its ending says: .csv, .tsv or .jsonl, the first two with names
    of columns in the first row.

    Args:
      path: of the file.
      columns: where to find what; None finds it.
      labelled: False for a file to predict, which may have labels; those that are all
        empty or -1 are none.

    Raises:
      ValueError: with all problems of the file, up to `tables.LISTED`.
    """
    path, problems = os.fspath(path), Problems(path)
    names, lines, rows = _table(path, problems)
    columns = find(path, columns or ChoiceColumns(), names, rows, labelled)
    found = zip(rows, lines, strict=True)
    texts = [_texts(row, line, columns, problems) for row, line in found]
    problems.raise_any()
    contexts, openings, choices = map(list, zip(*texts, strict=True))
    labels = [_cell(row, columns.label) for row in rows]
    if not labelled and set(labels) <= {"", HIDDEN}:
        return Questions(path, contexts, openings, choices, None, lines, columns)
    counts = [len(row) for row in choices]
    first = columns.first or _first(labels, counts, columns.choices)
    columns = dataclasses.replace(columns, first=first)
    places = _places(labels, counts, lines, columns, problems)
    return Questions(path, contexts, openings, choices, places, lines, columns)


def _table(path, problems):
    """Names of the columns, lines, and cells by the names of their columns."""
    names, lines, rows = tables.cells_of(path, problems)
    if names is None and rows:
        names, lines, rows = rows[0], lines[1:], rows[1:]
    if not rows:
        problems.raise_any()
        raise ValueError(f"{path} has no question; it needs names of columns and rows")
    rows, lines = tables.regular(rows, lines, len(names), problems)
    names = [name.strip() for name in names]
    return names, lines, [dict(zip(names, row, strict=True)) for row in rows]


def overlap(one: Questions, other: Questions) -> int:
    """How many rows of `other` have the texts of a row of `one`."""
    seen = set(_all_texts(one))
    return sum(row in seen for row in _all_texts(other))


def _all_texts(questions):
    choices = map(tuple, questions.choices)
    return zip(questions.contexts, questions.openings, choices, strict=True)


def _texts(row, line, columns, problems):
    """Context, start and choices of one row."""
    context = _cell(row, columns.context)
    if not context:
        column = f"column {columns.context!r},"
        problems.add(line, column, context, "needs a context; fill it in")
    return context, _cell(row, columns.opening), _choices(row, line, columns, problems)


def _cell(row, name):
    return (row.get(name) or "").strip()


def _choices(row, line, columns, problems):
    """The choices of a row; a row with fewer than others leaves the last ones empty."""
    cells = [_cell(row, name) for name in columns.choices]
    column = f"column {columns.choices[0]!r},"
    if len(cells) == 1:
        cells = _list(cells[0])
        if cells is None:
            value = _cell(row, columns.choices[0])
            problems.add(line, column, value, "is no list of texts; write one")
            return []
    while cells and not cells[-1]:
        cells.pop()
    if len(cells) < 2 or not all(cells):
        problems.add(line, column, " | ".join(cells), "needs two choices, none empty")
    return cells


def _list(cell):
    """The texts of a JSON list; None where it is none."""
    try:
        found = json.loads(cell)
    except ValueError:
        return None
    if not isinstance(found, list) or not all(isinstance(x, str) for x in found):
        return None
    return [text.strip() for text in found]


def _first(labels: Sequence[str], counts: Sequence[int], names: Sequence[str]) -> str:
    """What labels call the first choice: "0", "1", "A", "a", or its column's name."""
    if all(len(x) == 1 and x.isascii() and x.isalpha() for x in labels):
        return "A" if all(map(str.isupper, labels)) else "a"
    if any(x.isdecimal() for x in labels) or len(names) == 1:
        beyond = any(x == str(n) for x, n in zip(labels, counts, strict=True))
        return "1" if beyond and "0" not in labels else "0"
    return names[0]


def _places(labels, counts, lines, columns, problems):
    """The labels as numbers from 0."""
    found = []
    for label, count, line in zip(labels, counts, lines, strict=True):
        place = columns.place(label)
        if place is None or not 0 <= place < count:
            remedy = (
                f"is none of its {count} choices; write {columns.called(0)} to "
                f"{columns.called(count - 1)}"
            )
            problems.add(line, f"column {columns.label!r},", label, remedy)
        found.append(place)
    problems.raise_any()
    return found
