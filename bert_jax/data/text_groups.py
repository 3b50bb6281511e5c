"""Groups of texts to train sentence vectors on: pairs, triplets, scored pairs, classes.

Each row of a file has one text or several, and perhaps a score or a class.
"""

import dataclasses
import json
import math
import os
import re
from collections.abc import Collection, Sequence

from bert_jax.data import tables
from bert_jax.data.labelled_files import Cell, Problems, drop_irregular, read_cells
from bert_jax.data.tables import is_number, plain

# Common names of columns, the likeliest first.
KNOWN_NAMES = {
    "anchor": "anchor query question question1 sentence1 premise text1 sentence_a "
    "text_a text sentence sent1 sentence_1".split(),
    "positive": "positive pos answer response document passage documents docs passages "
    "sentence2 question2 hypothesis text2 text_pair sentence_b text_b context title "
    "sent2 sentence_2".split(),
    "negative": "negative neg hard_negative negatives hard_negatives".split(),
    "label": "score label similarity similarity_score relatedness_score gold_score "
    "gold_label margin class labels scores relevance target".split(),
}
_NUMBERED = re.compile(r"(?:hard_)?neg(?:ative)?s?_?(\d+)")

# Kinds of groups.
PAIRS, TRIPLETS, SCORED, LABELLED, TEXTS = (
    *("pairs", "triplets", "scored", "labelled", "texts"),
)


class OtherColumnsError(ValueError):
    """A file does not have the columns that are named."""


@dataclasses.dataclass(frozen=True)
class GroupColumns:
    """The columns to read, by name or by position from 0.

    Attributes:
      texts: the anchor, its positive, and then its negatives; () finds them.
      label: a score of the pair, or the class of the text; None finds it, "" for none.
    """

    texts: tuple[str, ...] = ()
    label: str | None = None


@dataclasses.dataclass(frozen=True)
class TextGroups:
    """The rows of a file, N of them with up to C texts each.

    Attributes:
      path: of the file.
      kind: "pairs" (an anchor and its positive), "triplets" (with negatives),
        "scored" (two texts or more, and numbers), "labelled" (a text and its class) or
        "texts".
      texts: C texts a row, "" where a row has fewer negatives than others.
      labels: of labelled texts their classes. Of scored texts C - 1 numbers a row, the
        similarity of the first text to each other one, or C - 2 margins between the
        second and each later one; 0 where a row has fewer texts. None for other kinds.
      lines: of the file.
      columns: where they were, to read another file of the kind alike.
    """

    path: str
    kind: str
    texts: list[tuple[str, ...]]
    labels: list[tuple[float, ...]] | list[str] | None
    lines: list[int]
    columns: GroupColumns

    def __len__(self) -> int:
        return len(self.texts)

    def describe(self) -> str:
        """The number of rows, their kind and their columns, in one line."""
        texts, label = self.columns.texts, self.columns.label
        kind = "labelled texts" if self.kind == LABELLED else self.kind
        if self.kind == SCORED:
            kind = "scored pairs"
        if len(self.texts[0]) > 2:
            kind = f"rows of {len(self.texts[0])} texts"
        role = "class" if self.kind == LABELLED else "score"
        labels = f", {role} in {label}" if label else ""
        return f"{len(self):,} {kind}; text in {', '.join(texts)}{labels}"


def read(
    path: str | os.PathLike,
    columns: GroupColumns | None = None,
    labelled: bool = True,
) -> TextGroups:
    """Reads one file by its ending: .tsv, .csv, .jsonl, .json or .parquet.

    Args:
      path: of the file.
      columns: the ones to read; None finds them.
      labelled: False for a file to predict, which need not have labels.

    Raises:
      ValueError: with all problems of the file, up to `labelled_files.MAX_LISTED`.
    """
    path, columns = os.fspath(path), columns or GroupColumns()
    problems = Problems(path)
    names, lines, rows = _read_rows(path, columns, problems)
    texts, label = find_columns(path, columns, names, rows, labelled)
    groups = [
        _texts(row, line, texts, names, problems)
        for row, line in zip(rows, lines, strict=True)
    ]
    width = max(map(len, groups), default=0)
    kind = _kind(texts, width, label)
    labels = None
    if label is not None:
        cells = [(row[label] or "").strip() for row in rows]
        counts = [len(row) for row in groups]
        labels = _labels(cells, kind, counts, lines, names[label], problems)
    problems.raise_any()
    return TextGroups(
        path,
        kind,
        [(*row, *[""] * (width - len(row))) for row in groups],
        labels,
        lines,
        GroupColumns(
            tuple(names[i] for i in texts), "" if label is None else names[label]
        ),
    )


def overlap(one: TextGroups, other: TextGroups) -> int:
    """The number of rows of `other` with the texts of a row of `one`."""
    seen = set(one.texts)
    return sum(row in seen for row in other.texts)


def find_columns(
    path: str,
    columns: GroupColumns,
    names: Sequence[str],
    rows: Sequence[list[Cell]],
    labelled: bool = True,
) -> tuple[list[int], int | None]:
    """The positions of the texts, and that of the label if there is one.

    Raises:
      ValueError: where a named column is missing, or it is ambiguous.
    """
    label = None
    if columns.label and (labelled or columns.label in names):
        label = _position(path, columns.label, names)
    if columns.texts:
        texts = [_position(path, name, names) for name in columns.texts]
    else:
        free = [i for i in range(len(names)) if i != label]
        texts = _find_texts(path, names, rows, free)
    if label is None and columns.label is None:
        label = _find_label(names, rows, texts)
    return texts, label


def _read_rows(
    path: str, columns: GroupColumns, problems: Problems
) -> tuple[list[str], list[int], list[list[Cell]]]:
    """Names of the columns, or their positions, lines, and cells."""
    header, lines, rows = read_cells(path, problems)
    if not rows:
        problems.raise_any()
        raise ValueError(f"{path} is empty; it needs rows of texts")
    if header is None:
        first = [(cell or "").strip() for cell in rows[0]]
        if _is_header(first, rows[1:], columns):
            header, rows, lines = first, rows[1:], lines[1:]
            if not rows:
                raise ValueError(f"{path} has a header and no row below it; add rows")
        else:
            header = [str(i) for i in range(len(first))]
    rows, lines = drop_irregular(rows, lines, len(header), problems)
    return [name.strip() for name in header], lines, rows


def _is_header(
    first: Sequence[str], rows: Sequence[list[Cell]], columns: GroupColumns
) -> bool:
    """True if a first row names columns instead of holding texts."""
    named = [name for name in (*columns.texts, columns.label) if name]
    if any(not name.isdigit() for name in named):
        return True
    known = {name for names in KNOWN_NAMES.values() for name in names}
    names = [plain(cell) for cell in first]
    if any(name in known or _NUMBERED.fullmatch(name) for name in names):
        return True
    alike = [row for row in rows if len(row) == len(first)]
    return any(
        bool(name and not is_number(name) and alike)
        and all(is_number(row[i]) for row in alike)
        for i, name in enumerate(names)
    )


def _position(path: str, column: str, names: Sequence[str]) -> int:
    if column in names:
        return names.index(column)
    if column.isdigit() and int(column) < len(names):
        return int(column)
    raise OtherColumnsError(
        f"{path}:1: there is no column {column!r}; it has {', '.join(names)}"
    )


def _known(role: str, names: Sequence[str], free: Collection[int]) -> list[int]:
    """Columns whose names are known for a role, the likeliest first."""
    return [i for name in KNOWN_NAMES[role] for i in free if plain(names[i]) == name]


def _find_texts(
    path: str, names: Sequence[str], rows: Sequence[list[Cell]], free: Sequence[int]
) -> list[int]:
    """Columns of texts by their names, or all those that hold more than numbers."""
    anchor = _known("anchor", names, free)[:1]
    positive = [i for i in _known("positive", names, free) if i not in anchor][:1]
    negatives = _known("negative", names, free)[:1]
    numbered = [i for i in free if _NUMBERED.fullmatch(plain(names[i]))]
    if anchor:
        return [*anchor, *positive, *(negatives + numbered if positive else [])]
    prose = [i for i in free if not all(is_number(row[i] or "0") for row in rows)]
    by_position = all(name.isdigit() for name in names)
    if prose and (by_position or len(prose) <= 2):
        # One text with few different values beside it is a text with a class.
        classes = [i for i in prose if tables.has_few_values(rows, i)]
        return [i for i in prose if i not in classes] or prose
    raise ValueError(
        f"{path}:1: which of the columns {', '.join(names)} are the texts? name them, "
        "as in texts=anchor positive"
    )


def _find_label(
    names: Sequence[str], rows: Sequence[list[Cell]], texts: Sequence[int]
) -> int | None:
    """The column of scores of several texts, or of classes of single ones."""
    free = [i for i in range(len(names)) if i not in texts]
    known = _known("label", names, free)
    if len(texts) == 1:
        likely = [i for i in reversed(free) if tables.has_few_values(rows, i)]
    else:
        likely = [i for i in reversed(free) if all(is_number(row[i]) for row in rows)]
    # Among columns without names, one of numbers can only be the scores.
    likely = likely if all(name.isdigit() for name in names) else []
    return next(iter([*known, *likely]), None)


def _texts(
    row: Sequence[Cell],
    line: int,
    columns: Sequence[int],
    names: Sequence[str],
    problems: Problems,
) -> list[str]:
    """The texts of a row; a cell with a list of texts counts as several."""
    texts: list[str] = []
    for place, i in enumerate(columns):
        cell = (row[i] or "").strip()
        several = _list_of_texts(cell) if place else None
        for text in [cell] if several is None else several:
            if text or place > 1:
                texts.append(text)
            else:
                role = "a text" if len(columns) == 1 else "both texts of the pair"
                name = f"column {names[i]!r},"
                problems.add(line, name, text, f"needs {role}; fill it in")
    while len(texts) > 2 and not texts[-1]:
        texts.pop()
    return texts


def _list_of_texts(cell: str) -> list[str] | None:
    """The texts of a JSON list; None if the cell is no list of texts."""
    if cell[:1] != "[":
        return None
    try:
        values = json.loads(cell)
    except (ValueError, RecursionError):
        return None
    if not isinstance(values, list) or not all(isinstance(x, str) for x in values):
        return None
    return [text.strip() for text in values]


def _kind(texts: Sequence[int], width: int, label: int | None) -> str:
    if len(texts) == 1:
        return TEXTS if label is None else LABELLED
    if label is not None:
        return SCORED
    return PAIRS if width == 2 else TRIPLETS


def _labels(
    cells: Sequence[str],
    kind: str,
    counts: Sequence[int],
    lines: Sequence[int],
    name: str,
    problems: Problems,
) -> list[tuple[float, ...]] | list[str]:
    """Numbers, or names of classes; adds those that cannot be right to `problems`."""
    column = f"column {name!r},"
    if kind == LABELLED:
        for line, cell in zip(lines, cells, strict=True):
            if not cell:
                problems.add(line, column, cell, "needs a label; fill it in")
        return list(cells)
    rows: list[tuple[float, ...]] = []
    missing = set()
    for line, cell, count in zip(lines, cells, counts, strict=True):
        numbers = _numbers(cell)
        if numbers is None:
            problems.add(line, column, cell, "is no score; write a number, as 0.8")
        elif len(numbers) not in (count - 1, max(1, count - 2)):
            remedy = f"are {len(numbers)} scores; write {count - 1}, one for each text"
            problems.add(line, column, cell, f"{remedy} after the first")
        else:
            rows.append(numbers)
            # A number beside two texts is either.
            missing |= {count - len(numbers)} if count > 2 else set()
    if len(missing) > 1:
        remedy = "is a score for each text in some rows, and a margin in others; choose"
        problems.add(lines[0], column, cells[0], f"{remedy} one")
    width = max(counts) - max(missing, default=1)
    return [(*row, *[0.0] * (width - len(row))) for row in rows]


def _numbers(cell: str) -> tuple[float, ...] | None:
    """The finite numbers of a cell, one or a JSON list; None if it holds none."""
    try:
        values = json.loads(cell) if cell[:1] == "[" else [float(cell)]
        numbers = tuple(map(float, values))
    except (ValueError, TypeError, RecursionError):
        return None
    return numbers if all(map(math.isfinite, numbers)) else None
