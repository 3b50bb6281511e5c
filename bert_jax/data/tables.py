"""Labelled texts from TSV, CSV and JSONL files.

Each row of a table has a text, perhaps a second text, and a label.
"""

import ast
import dataclasses
import math
import os
import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np

from bert_jax.data.labelled_files import (
    MAX_LISTED,
    Cell,
    Problems,
    drop_irregular,
    one_column,
    read_cells,
)
from bert_jax.files import counted

# GLUE's test sets have this in place of a label.
HIDDEN = "-1"

# A label column has at most so many different values, or numbers only.
MAX_CLASSES = 20

# Common names of columns, GLUE's files among them, the likeliest first.
KNOWN_NAMES = {
    "label": "label gold_label score similarity similarity_score is_duplicate quality "
    "class target labels".split(),
    "text": "text sentence1 question1 premise #1_string question sentence "
    "review".split(),
    "pair": "text2 text_pair sentence2 question2 hypothesis #2_string sentence "
    "context".split(),
}

# The tasks of files without a label for each text, by the name of a column.
_OTHER_TASKS = {"context": "answer", "tokens": "tag", "words": "tag"}


@dataclasses.dataclass(frozen=True)
class Columns:
    """The columns to read: a name, a position from 0, or None to find it.

    `by_width` holds the columns of files without a header by how many they have.
    """

    text: str | int | None = None
    pair: str | int | None = None
    label: str | int | None = None
    by_width: Mapping[int, "Columns"] = dataclasses.field(default_factory=dict)

    @property
    def named(self) -> dict[str, str | int]:
        """The columns that are not None."""
        roles = {"text": self.text, "pair": self.pair, "label": self.label}
        return {role: column for role, column in roles.items() if column is not None}


@dataclasses.dataclass(frozen=True)
class Table:
    """The rows of a file: texts, second texts and labels (None without), and lines.

    `columns` are where they were, to read another file of the same kind alike; `others`
    holds the other columns by their names in the header.
    """

    path: str
    texts: list[str]
    pairs: list[str] | None
    labels: list[str] | None
    lines: list[int]
    columns: Columns = dataclasses.field(default_factory=Columns)
    # Not in the digest of a run's data.
    others: dict[str, list[str]] = dataclasses.field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.texts)

    def describe(self, labels: Sequence[str]) -> str:
        """Rows, classes and columns in one line; no `labels` means numbers."""
        columns = ", ".join(f"{k} in {v}" for k, v in self.columns.named.items())
        if not labels:
            return f"{counted(len(self), 'row')} with numbers; {columns}"
        all_labels = self.labels or []
        counts = ", ".join(
            f"{all_labels.count(x):,} of {x}" for x in labels[:MAX_LISTED]
        )
        return f"{counted(len(self), 'row')}: {counts}; {columns}"


def read(
    path: str | os.PathLike, columns: Columns | None = None, labelled: bool = True
) -> Table:
    """Reads one file by its ending: .tsv, .csv, .jsonl, .json or .parquet.

    Args:
      path: of the file.
      columns: the ones to read; None finds them.
      labelled: False for a file to predict, which may have labels; those of GLUE's
        test sets, all -1, count as none.

    Raises:
      ValueError: with all problems of the file, up to `MAX_LISTED`.
    """
    path, columns = os.fspath(path), columns or Columns()
    problems = Problems(path)
    header, lines, rows = read_cells(path, problems)
    if not rows:
        problems.raise_any()
        raise ValueError(f"{path} is empty; it needs rows of a text and a label")
    names = header or []
    if header is None:
        if labelled:
            _check_header(path, rows, columns)
        names, rows, lines, columns = _split_header(path, rows, lines, columns)
    rows, lines = drop_irregular(rows, lines, len(names), problems)
    if labelled and len(names) == 1:
        raise ValueError(one_column(path))
    positions = find_columns(path, columns, names, rows, labelled)
    cells = {role: [row[i] or "" for row in rows] for role, i in positions.items()}
    for role, column in cells.items():
        for line, cell in zip(lines, column, strict=True):
            if not cell.strip():
                name = f"column {names[positions[role]]!r},"
                problems.add(line, name, cell, f"needs a {role}; fill it in")
        if role == "label":
            _check_lists(column, lines, problems)
    problems.raise_any()
    texts = {role: [cell.strip() for cell in column] for role, column in cells.items()}
    named = {role: names[i] for role, i in positions.items()}
    columns = Columns(named["text"], named.get("pair"), named.get("label"))
    labels = texts.get("label")
    if not labelled and labels and set(labels) == {HIDDEN}:
        labels = None
    others = {
        name: [row[i] or "" for row in rows]
        for i, name in enumerate(names)
        if i not in positions.values() and name and not name.isdigit()
    }
    pairs = texts.get("pair")
    return Table(path, texts["text"], pairs, labels, lines, columns, others)


def _check_lists(labels: Sequence[str], lines: list[int], problems: Problems) -> None:
    """Adds the first label that is a list to `problems`."""
    lists = [
        i for i, label in enumerate(labels) if label[:1] == "[" and _is_list(label)
    ]
    if lists:
        remedy = (
            f"is a list, as in {counted(len(lists), 'row')}; give a text one label, or "
            "list its words too and train the task tag"
        )
        problems.add(lines[lists[0]], "label", labels[lists[0]], remedy)


def _is_list(cell: str) -> bool:
    """True if a cell reads as a list, of JSON or of Python."""
    try:
        return isinstance(ast.literal_eval(cell), list)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return False


def class_names(train: Table, regression: bool | None = None) -> tuple[str, ...]:
    """Names of the classes in the order of their numbers; none for regression.

    By default it is regression if the labels are numbers and not all whole.
    """
    names = sorted(set(train.labels or ()), key=_numbers_first)
    if regression is None:
        whole = all(name.lstrip("+-").isdigit() for name in names)
        regression = all(map(is_number, names)) and not whole
    return () if regression else tuple(names)


def _numbers_first(label: str) -> tuple[float, str]:
    return (float(label), label) if is_number(label) else (float("inf"), label)


def numbers(table: Table) -> list[float]:
    """The labels as numbers.

    Raises:
      ValueError: with each label that is not a finite number.
    """
    problems, labels = Problems(table.path), table.labels or []
    for line, label in zip(table.lines, labels, strict=True):
        if not (is_number(label) and math.isfinite(float(label))):
            problems.add(line, "label", label, "is not a number; write one")
    problems.raise_any()
    return [float(label) for label in labels]


def classes(table: Table, names: Sequence[str]) -> list[int]:
    """The labels as indices into `names`.

    A label is a name, or its number where no name is a number.

    Raises:
      ValueError: with each label that is not among them.
    """
    problems, labels = Problems(table.path), table.labels or []
    index = {name: i for i, name in enumerate(names)}
    if not any(map(is_number, names)):
        index |= {str(i): i for i in range(len(names))}
    known = ", ".join(names) if len(names) <= 10 else f"{len(names)} labels"
    for line, label in zip(table.lines, labels, strict=True):
        if label not in index:
            problems.add(line, "label", label, f"is not one of {known}; fix it")
    problems.raise_any()
    return [index[label] for label in labels]


def hold_out(
    table: Table, share: float, regression: bool | None = None
) -> tuple[Table, Table]:
    """The rows to train on and those held out, each in the order of the file.

    Each class gives its share, and numbers are one class. Which rows are held out
    depends on the labels and the share alone.

    Raises:
      ValueError: where no row is left on one of the sides.
    """
    labels = table.labels or []
    groups = np.array(labels if class_names(table, regression) else [""] * len(labels))
    order = np.random.default_rng(0).permutation(len(groups))
    is_held_out = np.zeros(len(groups), bool)
    for name in sorted(set(groups.tolist())):
        rows = order[groups[order] == name]
        is_held_out[rows[: round(share * len(rows))]] = True
    if is_held_out.all() or not is_held_out.any():
        raise ValueError(
            f"{table.path} has {counted(len(table), 'row')}, of which a share of "
            f"{share} leaves nothing to train on or to hold out; give a file for dev"
        )
    held_out = _rows(table, np.flatnonzero(is_held_out).tolist())
    path = f"{table.path} (held out)"
    return (
        _rows(table, np.flatnonzero(~is_held_out).tolist()),
        dataclasses.replace(held_out, path=path),
    )


def _rows(table: Table, rows: Sequence[int]) -> Table:
    """Some rows of a table."""
    return dataclasses.replace(
        table,
        texts=[table.texts[i] for i in rows],
        pairs=table.pairs and [table.pairs[i] for i in rows],
        labels=table.labels and [table.labels[i] for i in rows],
        lines=[table.lines[i] for i in rows],
        others={name: [x[i] for i in rows] for name, x in table.others.items()},
    )


def overlap(one: Table, other: Table) -> int:
    """The number of rows of `other` with the texts of a row of `one`."""
    seen = set(_texts(one))
    return sum(row in seen for row in _texts(other))


def _texts(table: Table) -> Iterator[tuple[str, str]]:
    return zip(table.texts, table.pairs or table.texts, strict=True)


def find_columns(
    path: str,
    columns: Columns,
    names: Sequence[str],
    rows: Sequence[list[Cell]],
    labelled: bool = True,
) -> dict[str, int]:
    """The positions of "text", "label" and perhaps "pair" in `rows`.

    Args:
      path: for errors.
      columns: the ones to read; those of another file where `labelled` is False.
      names, rows: of the columns, and the cells below them.
      labelled: False for a file that need not have a label, nor the other's columns.

    Raises:
      ValueError: where a named column is missing, or it is ambiguous.
    """
    named = columns.named
    if not labelled:
        label = named.get("label")
        named = {role: name for role, name in named.items() if name in names}
        if "text" not in named:
            named.pop("pair", None)
        # GLUE's diagnostics have their own names, as Label for MNLI's gold_label.
        same = [x for x in names if label and plain(x) in (plain(str(label)), "label")]
        if same and "label" not in named:
            named["label"] = same[0]
    positions = {
        role: _position(path, role, name, names) for role, name in named.items()
    }
    if "label" not in positions and labelled:
        positions["label"] = _find_label(path, names, rows, positions.values())
    if "text" not in positions:
        positions |= _find_texts(path, names, rows, positions)
    if columns.pair is not None and "pair" not in positions:
        _position(path, "pair", columns.pair, names)
    return positions


def plain(name: str) -> str:
    """A column's name in lower case, without blanks."""
    return name.strip().lower().replace(" ", "_")


def is_number(cell: Cell) -> bool:
    """True if a cell reads as a number."""
    try:
        float(cell or "")
    except ValueError:
        return False
    return True


def _split_header(
    path: str, rows: list[list[Cell]], lines: list[int], columns: Columns
) -> tuple[list[str], list[list[Cell]], list[int], Columns]:
    """Names of the columns, the rows below them, their lines, and the columns."""
    first = [cell or "" for cell in rows[0]]
    if _is_header(first, rows[1:], columns):
        if not rows[1:]:
            raise ValueError(f"{path} has a header and no row below it; add rows")
        return [name.strip() for name in first], rows[1:], lines[1:], columns
    width = statistics.mode(map(len, rows))
    if not columns.named:
        columns = columns.by_width.get(width, columns)
    return [str(i) for i in range(width)], rows, lines, columns


def _check_header(path: str, rows: list[list[Cell]], columns: Columns) -> None:
    """Raises ValueError if columns of a file without a header are named."""
    first = [cell or "" for cell in rows[0]]
    named = [x for x in columns.named.values() if not str(x).isdigit()]
    missing = [x for x in named if x not in [name.strip() for name in first]]
    if missing == named != [] and not _is_header(first, rows[1:], Columns()):
        raise ValueError(
            f"{path} has no header, so it has no column {missing[0]!r}; name its "
            f"columns by position, 0 to {len(first) - 1}"
        )


def _is_header(
    first: Sequence[str], rows: Sequence[list[Cell]], columns: Columns
) -> bool:
    """True if a first row names columns instead of holding values."""
    names = [plain(cell) for cell in first]
    if any(not str(column).isdigit() for column in columns.named.values()):
        return True
    if any(name in known for known in KNOWN_NAMES.values() for name in names):
        return True
    # A word above a column of numbers is its name.
    rows = [row for row in rows if len(row) == len(first)]
    return any(
        bool(name and not is_number(name) and rows)
        and all(is_number(row[i]) for row in rows)
        for i, name in enumerate(names)
    )


def _position(path: str, role: str, column: str | int, names: Sequence[str]) -> int:
    if column in names:
        return names.index(str(column))
    if str(column).isdigit() and int(column) < len(names):
        return int(column)
    raise ValueError(
        f"{path}:1: there is no column {column!r} for the {role}; it has "
        f"{', '.join(names)}"
    )


def _find_label(
    path: str,
    names: Sequence[str],
    rows: Sequence[list[Cell]],
    taken: Collection[int],
) -> int:
    free = [i for i in range(len(names)) if i not in taken]
    # Labels mostly come last.
    similar = [i for i in reversed(free) if _is_label(rows, i)]
    candidates = _known("label", names, free) + similar
    if candidates and len(names) > 1:
        return candidates[0]
    other = [x for name, x in _OTHER_TASKS.items() if name in map(plain, names)]
    remedy = f", or train the task {other[0]}" if other else ""
    raise ValueError(
        f"{path}:1: none of the columns {', '.join(names)} looks like a label (few "
        f"different values, or numbers); name the label's{remedy}"
    )


def _find_texts(
    path: str,
    names: Sequence[str],
    rows: Sequence[list[Cell]],
    positions: Mapping[str, int],
) -> dict[str, int]:
    free = [i for i in range(len(names)) if i not in positions.values()]
    text = _known("text", names, free)[:1]
    pair = [i for i in _known("pair", names, free) if i not in text][:1]
    if not text:
        words = [i for i in free if not all(is_number(row[i]) for row in rows)]
        prose = [i for i in free if not _is_label(rows, i)] or words or free
        if not 1 <= len(prose) <= 2:
            raise ValueError(
                f"{path}:1: which of the columns {', '.join(names)} is the text? name "
                "it, and the pair's where there is one"
            )
        text, pair = prose[:1], prose[1:]
    return {"text": text[0], **({"pair": pair[0]} if pair else {}), **positions}


def _known(role: str, names: Sequence[str], free: Sequence[int]) -> list[int]:
    """Columns whose names are known for a role, the likeliest first."""
    known = KNOWN_NAMES[role]
    return [i for name in known for i in free if plain(names[i]) == name]


def _is_label(rows: Sequence[list[Cell]], column: int) -> bool:
    cells = {row[column] for row in rows if column < len(row)} - {None}
    return has_few_values(rows, column) or all(is_number(cell) for cell in cells)


def has_few_values(rows: Sequence[list[Cell]], column: int) -> bool:
    """True if a column holds as few different values as classes have names."""
    cells = {row[column] for row in rows if column < len(row)} - {None}
    return len(cells) <= max(2, min(MAX_CLASSES, len(rows) // 2))
