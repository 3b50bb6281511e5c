"""Multiple-choice questions from CSV, TSV and JSONL files."""

import dataclasses
import itertools
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence

from bert_jax.data.labelled_files import Cell, Problems, drop_irregular, read_cells
from bert_jax.data.tables import HIDDEN, plain

# Common names of columns, the likeliest first; SWAG's come first.
KNOWN_NAMES = {
    "context": "sent1 context ctx_a ctx premise article passage paragraph startphrase "
    "goal sentence text question".split(),
    "opening": "sent2 ctx_b question".split(),
    "label": "label answer answerkey answer_key gold correct target".split(),
}

# Names of one column that holds a list, and stems of numbered columns.
LISTS = ("choices", "endings", "options", "answers")
STEMS = ("ending", "choice", "option", "answer", "sol", "solution", "")
_NUMBERED = re.compile(r"([a-z]*?)[_-]?(\d|[a-z])")
_ORDERS = ("0123456789", "123456789", "abcdefghijklmnopqrstuvwxyz")

Row = Mapping[str, Cell]


@dataclasses.dataclass(frozen=True)
class ChoiceColumns:
    """The columns to read, by name; None, or no choices, to find them.

    Attributes:
      context: the text that every choice continues.
      opening: the first words of every choice; "" for none.
      choices: a column for each, or one that holds lists in JSON.
      label: the right choice.
      first: the label of the first choice, for example "0", "1" or "A".
    """

    context: str | None = None
    opening: str | None = None
    choices: tuple[str, ...] = ()
    label: str | None = None
    first: str | None = None

    def index(self, label: str) -> int | None:
        """The number from 0 of the choice with a label; None for an unknown label."""
        first = self.first or ""
        if first.isdecimal():
            return int(label) - int(first) if label.isdecimal() else None
        if len(first) == 1:
            return ord(label) - ord(first) if len(label) == 1 else None
        return self.choices.index(label) if label in self.choices else None

    def label_of(self, index: int) -> str:
        """The label of the choice with a number from 0; the inverse of `index`."""
        first = self.first or ""
        if first.isdecimal():
            return str(int(first) + index)
        if len(first) == 1:
            return chr(ord(first) + index)
        return self.choices[index]


@dataclasses.dataclass(frozen=True)
class Questions:
    """The rows of a file: contexts, openings, choices, and the right one.

    `openings` are "" where a choice has none; `labels` count from 0, None in a file
    without; `columns` are where they were, to read another file of the kind alike.
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


def read(
    path: str | os.PathLike,
    columns: ChoiceColumns | None = None,
    labelled: bool = True,
) -> Questions:
    """Reads one file by its ending: .jsonl, or .csv and .tsv with a header.

    Args:
      path: of the file.
      columns: the ones to read; None finds them.
      labelled: False for a file to predict, which may have labels; those that are all
        empty or -1 count as none.

    Raises:
      ValueError: with all problems of the file, up to `labelled_files.MAX_LISTED`.
    """
    path = os.fspath(path)
    problems = Problems(path)
    names, lines, rows = _read_rows(path, problems)
    columns = find_columns(path, columns or ChoiceColumns(), names, rows, labelled)
    numbered = zip(rows, lines, strict=True)
    texts = [_texts(row, line, columns, problems) for row, line in numbered]
    problems.raise_any()
    contexts, openings, choices = map(list, zip(*texts, strict=True))
    labels = [_cell(row, columns.label) for row in rows]
    if not labelled and set(labels) <= {"", HIDDEN}:
        return Questions(path, contexts, openings, choices, None, lines, columns)
    counts = [len(row) for row in choices]
    first = columns.first or _first_label(labels, counts, columns.choices)
    columns = dataclasses.replace(columns, first=first)
    numbers = _numbers(labels, counts, lines, columns, problems)
    return Questions(path, contexts, openings, choices, numbers, lines, columns)


def overlap(one: Questions, other: Questions) -> int:
    """The number of rows of `other` with the texts of a row of `one`."""
    seen = set(_all_texts(one))
    return sum(row in seen for row in _all_texts(other))


def _all_texts(questions: Questions) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    choices = map(tuple, questions.choices)
    return zip(questions.contexts, questions.openings, choices, strict=True)


def find_columns(
    path: str,
    columns: ChoiceColumns,
    names: Sequence[str],
    rows: Sequence[Row],
    labelled: bool,
) -> ChoiceColumns:
    """`columns` with the open ones found; `opening` is "" where there is none.

    Raises:
      ValueError: where a named column is missing, or it is ambiguous.
    """
    _check_names(path, columns, names, labelled)
    taken = columns.context, columns.opening, columns.label
    free = [name for name in names if name not in taken]
    choices = columns.choices or _list_column(free, rows) or numbered_columns(free)
    free = [name for name in free if name not in choices]
    label = columns.label or _known("label", free)
    free = [name for name in free if name != label]
    context = columns.context or _known("context", free) or _only(free)
    free = [name for name in free if name != context]
    opening = columns.opening
    if opening is None:
        opening = _known("opening", free) or ""
    needed = {"context": context, "label": label or not labelled}
    missing = [role for role, name in needed.items() if not name]
    if missing or not choices:
        role = missing[0] if choices else "choices"
        raise ValueError(
            f"{path}:1: which of the columns {', '.join(names)} has the {role}? name it"
        )
    return dataclasses.replace(
        columns, context=context, opening=opening, choices=tuple(choices), label=label
    )


def _check_names(
    path: str, columns: ChoiceColumns, names: Sequence[str], labelled: bool
) -> None:
    """Raises ValueError for a named column that the file does not have."""
    needed = [columns.context, columns.opening, *columns.choices]
    for name in filter(None, [*needed, columns.label if labelled else None]):
        if name not in names:
            raise ValueError(
                f"{path}:1: there is no column {name!r}; it has "
                f"{', '.join(filter(None, names))}"
            )


def _known(role: str, free: Sequence[str]) -> str | None:
    """The likeliest column whose name is known for a role."""
    known = [x for name in KNOWN_NAMES[role] for x in free if plain(x) == name]
    return known[0] if known else None


def _only(free: Sequence[str]) -> str | None:
    return free[0] if len(free) == 1 else None


def _list_column(free: Sequence[str], rows: Sequence[Row]) -> list[str]:
    """The column that holds the choices as a list, if there is one."""
    cells = {name: rows[0].get(name) or "" for name in free}
    lists = [x for x in free if plain(x) in LISTS and cells[x].startswith("[")]
    return lists[:1]


def numbered_columns(free: Sequence[str]) -> list[str]:
    """Columns that differ in a number or a letter at their end, in its order."""
    families: dict[str, dict[str, str]] = {stem: {} for stem in STEMS}
    for name in free:
        match = _NUMBERED.fullmatch(plain(name))
        if match and match[1] in families:
            families[match[1]][match[2]] = name
    for family in families.values():
        for order in _ORDERS:
            ends = list(itertools.takewhile(family.__contains__, order))
            if len(ends) > 1:
                return [family[end] for end in ends]
    return []


def _read_rows(
    path: str, problems: Problems
) -> tuple[list[str], list[int], list[dict[str, Cell]]]:
    """Names of the columns, lines, and cells by the names of their columns."""
    names, lines, rows = read_cells(path, problems)
    if names is None and rows:
        names, lines, rows = [cell or "" for cell in rows[0]], lines[1:], rows[1:]
    if names is None or not rows:
        problems.raise_any()
        raise ValueError(f"{path} has no question; it needs names of columns and rows")
    rows, lines = drop_irregular(rows, lines, len(names), problems)
    names = [name.strip() for name in names]
    return names, lines, [dict(zip(names, row, strict=True)) for row in rows]


def _texts(
    row: Row, line: int, columns: ChoiceColumns, problems: Problems
) -> tuple[str, str, list[str]]:
    """Context, opening and choices of one row."""
    context = _cell(row, columns.context)
    if not context:
        column = f"column {columns.context!r},"
        problems.add(line, column, context, "needs a context; fill it in")
    return context, _cell(row, columns.opening), _choices(row, line, columns, problems)


def _cell(row: Row, name: str | None) -> str:
    return ((row.get(name) if name else None) or "").strip()


def _choices(
    row: Row, line: int, columns: ChoiceColumns, problems: Problems
) -> list[str]:
    """The choices of a row; a row with fewer than others leaves the last ones empty."""
    cells = [_cell(row, name) for name in columns.choices]
    column = f"column {columns.choices[0]!r},"
    if len(cells) == 1:
        texts = _list_of_texts(cells[0])
        if texts is None:
            problems.add(line, column, cells[0], "is not a list of texts; write one")
            return []
        cells = texts
    while cells and not cells[-1]:
        cells.pop()
    if len(cells) < 2 or not all(cells):
        problems.add(line, column, " | ".join(cells), "needs two choices, none empty")
    return cells


def _list_of_texts(cell: str) -> list[str] | None:
    """The texts of a JSON list; None if the cell holds none."""
    try:
        values = json.loads(cell)
    except ValueError:
        return None
    if not isinstance(values, list) or not all(isinstance(x, str) for x in values):
        return None
    return [text.strip() for text in values]


def _first_label(
    labels: Sequence[str], counts: Sequence[int], names: Sequence[str]
) -> str:
    """The label of the first choice: "0", "1", "A", "a", or its column's name."""
    if all(len(x) == 1 and x.isascii() and x.isalpha() for x in labels):
        return "A" if all(map(str.isupper, labels)) else "a"
    if any(x.isdecimal() for x in labels) or len(names) == 1:
        beyond = any(x == str(n) for x, n in zip(labels, counts, strict=True))
        return "1" if beyond and "0" not in labels else "0"
    return names[0]


def _numbers(
    labels: Sequence[str],
    counts: Sequence[int],
    lines: Sequence[int],
    columns: ChoiceColumns,
    problems: Problems,
) -> list[int]:
    """The labels as numbers from 0."""
    numbers = []
    for label, count, line in zip(labels, counts, lines, strict=True):
        number = columns.index(label)
        if number is None or not 0 <= number < count:
            remedy = (
                f"is not one of its {count} choices; write {columns.label_of(0)} to "
                f"{columns.label_of(count - 1)}"
            )
            problems.add(line, f"column {columns.label!r},", label, remedy)
        else:
            numbers.append(number)
    problems.raise_any()
    return numbers
