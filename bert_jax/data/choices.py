"""Questions with several choices from CSV, TSV and JSONL files, and rows of them."""

import dataclasses
import itertools
import json
import os
import re
from collections.abc import Mapping, Sequence

import numpy as np

from bert_jax.data import tables
from bert_jax.data.ragged import RaggedRows
from bert_jax.data.tables import Problems, plain

# How data sets name columns, the likeliest first; SWAG's come first.
KNOWN = {
    "context": "sent1 context ctx_a ctx premise article passage paragraph startphrase "
    "goal sentence text question".split(),
    "opening": "sent2 ctx_b question".split(),
    "label": "label answer answerkey answer_key gold correct target".split(),
}

# One column that holds a list, and what stands before the number of one choice.
LISTS = ("choices", "endings", "options", "answers")
STEMS = ("ending", "choice", "option", "answer", "sol", "solution", "")
_NUMBERED = re.compile(r"([a-z]*?)[_-]?(\d|[a-z])")
_ORDERS = ("0123456789", "123456789", "abcdefghijklmnopqrstuvwxyz")


@dataclasses.dataclass(frozen=True)
class ChoiceColumns:
    """Which columns to read, by name; None, or no choices, to find them.

    Attributes:
      context: what every choice follows.
      opening: what opens every choice; "" for none.
      choices: a column for each, or one that holds lists in JSON.
      label: which choice is right.
      first: what labels call the first choice, for example "0", "1" or "A".
    """

    context: str | None = None
    opening: str | None = None
    choices: tuple[str, ...] = ()
    label: str | None = None
    first: str | None = None

    def place(self, label: str) -> int | None:
        """The number from 0 of what a label says; None where it says nothing."""
        if self.first.isdecimal():
            return int(label) - int(self.first) if label.isdecimal() else None
        if len(self.first) == 1:
            return ord(label) - ord(self.first) if len(label) == 1 else None
        return self.choices.index(label) if label in self.choices else None

    def called(self, place: int) -> str:
        """What a label calls the choice of a number from 0; `place` undone."""
        if self.first.isdecimal():
            return str(int(self.first) + place)
        if len(self.first) == 1:
            return chr(ord(self.first) + place)
        return self.choices[place]


def find(
    path: str,
    asked: ChoiceColumns,
    names: Sequence[str],
    rows: Sequence[Mapping[str, str | None]],
    labelled: bool,
) -> ChoiceColumns:
    """`asked` with what it leaves open; `opening` is "" where there is none.

    Raises:
      ValueError: where a given column is missing, or none can be told apart.
    """
    _refuse_missing(path, asked, names, labelled)
    free = [x for x in names if x not in (asked.context, asked.opening, asked.label)]
    choices = asked.choices or _lists(free, rows) or _numbered(free)
    free = [x for x in free if x not in choices]
    label = asked.label or _known("label", free)
    free = [x for x in free if x != label]
    context = asked.context or _known("context", free) or _only(free)
    free = [x for x in free if x != context]
    opening = asked.opening
    if opening is None:
        opening = _known("opening", free) or ""
    needed = {"context": context, "label": label or not labelled}
    missing = [role for role, name in needed.items() if not name]
    if missing or not choices:
        what = missing[0] if choices else "choices"
        raise ValueError(
            f"{path}:1: which of the columns {', '.join(names)} has the {what}? name it"
        )
    return dataclasses.replace(
        asked, context=context, opening=opening, choices=tuple(choices), label=label
    )


def _refuse_missing(path, asked, names, labelled):
    needed = [asked.context, asked.opening, *asked.choices]
    for name in filter(None, [*needed, asked.label if labelled else None]):
        if name not in names:
            raise ValueError(
                f"{path}:1: there is no column {name!r}; it has "
                f"{', '.join(filter(None, names))}"
            )


def _known(role, free):
    """The column whose name is known for a role, the likeliest one."""
    found = [x for name in KNOWN[role] for x in free if plain(x) == name]
    return found[0] if found else None


def _only(free):
    return free[0] if len(free) == 1 else None


def _lists(free, rows):
    cells = {name: rows[0].get(name) or "" for name in free}
    found = [x for x in free if plain(x) in LISTS and cells[x].startswith("[")]
    return found[:1]


def _numbered(free):
    """Columns that differ in a number or a letter at their end, in its order."""
    families = {stem: {} for stem in STEMS}
    for name in free:
        match = _NUMBERED.fullmatch(plain(name))
        if match and match[1] in families:
            families[match[1]][match[2]] = name
    for found in families.values():
        for order in _ORDERS:
            ends = list(itertools.takewhile(found.__contains__, order))
            if len(ends) > 1:
                return [found[end] for end in ends]
    return []


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
        self.max_length = each.max_length
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
