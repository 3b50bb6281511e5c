"""Labelled texts from TSV, CSV and JSONL files, and all that is wrong in one.

Each row of a table has a text, perhaps a second text, and a label.
"""

import csv
import dataclasses
import io
import json
import math
import os
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

# A label column has at most so many different values, or numbers only.
FEW = 20

# How people name columns, GLUE's files among them, the likeliest first.
NAMES = {
    "label": "label gold_label score similarity similarity_score is_duplicate quality "
    "class target",
    "text": "text sentence1 question1 premise #1_string question sentence review",
    "pair": "text2 text_pair sentence2 question2 hypothesis #2_string sentence context",
}
KNOWN = {role: names.split() for role, names in NAMES.items()}


@dataclasses.dataclass(frozen=True)
class Columns:
    """Which columns to read: a name, a position from 0, or None to find it.

    `by_width` holds the columns of files without a header by how many they have.
    """

    text: str | int | None = None
    pair: str | int | None = None
    label: str | int | None = None
    by_width: Mapping[int, "Columns"] = dataclasses.field(default_factory=dict)

    @property
    def asked(self) -> dict[str, str | int]:
        """The columns that were given."""
        roles = {role: getattr(self, role) for role in ("text", "pair", "label")}
        return {role: asked for role, asked in roles.items() if asked is not None}


def is_header(first: Sequence[str], rows: Sequence[list], columns: Columns) -> bool:
    """Whether a first row names columns instead of holding values."""
    names = [plain(cell) for cell in first]
    if any(not str(asked).isdigit() for asked in columns.asked.values()):
        return True
    if any(name in known for known in KNOWN.values() for name in names):
        return True
    # A word above a column of numbers is its name.
    rows = [row for row in rows if len(row) == len(first)]
    return any(
        name and not is_number(name) and rows and all(is_number(row[i]) for row in rows)
        for i, name in enumerate(names)
    )


def find(
    path: str,
    columns: Columns,
    names: Sequence[str],
    rows: Sequence[list],
    labelled: bool = True,
) -> dict[str, int]:
    """The places of "text", "label" and perhaps "pair" in `rows`.

    Args:
      path: for errors.
      columns: as given; those of another file where `labelled` is False.
      names, rows: of the columns, and what stands below them.
      labelled: False for a file that need not have a label, nor the other's columns.

    Raises:
      ValueError: where a given column is missing, or none can be told apart.
    """
    asked = columns.asked
    if not labelled:
        asked = {role: name for role, name in asked.items() if name in names}
        if "text" not in asked:
            asked.pop("pair", None)
    found = {role: _given(path, role, name, names) for role, name in asked.items()}
    if "label" not in found and labelled:
        found["label"] = _find_label(path, names, rows, found.values())
    if "text" not in found:
        found |= _find_texts(path, names, rows, found)
    if columns.pair is not None and "pair" not in found:
        _given(path, "pair", columns.pair, names)
    return found


def _given(path, role, asked, names):
    if asked in names:
        return names.index(asked)
    if str(asked).isdigit() and int(asked) < len(names):
        return int(asked)
    raise ValueError(
        f"{path}:1: there is no column {asked!r} for the {role}; it has "
        f"{', '.join(names)}"
    )


def _find_label(path, names, rows, taken):
    free = [i for i in range(len(names)) if i not in taken]
    # Labels mostly stand last.
    like = [i for i in reversed(free) if _is_label(rows, i)]
    found = _known("label", names, free) + like
    if found and len(names) > 1:
        return found[0]
    raise ValueError(
        f"{path}:1: none of the columns {', '.join(names)} looks like a label (few "
        "different values, or numbers); name the label's"
    )


def _find_texts(path, names, rows, found):
    free = [i for i in range(len(names)) if i not in found.values()]
    text = _known("text", names, free)[:1]
    pair = [i for i in _known("pair", names, free) if i not in text][:1]
    if not text:
        prose = [i for i in free if not _is_label(rows, i)] or free
        if not 1 <= len(prose) <= 2:
            raise ValueError(
                f"{path}:1: which of the columns {', '.join(names)} is the text? name "
                "it, and the pair's where there is one"
            )
        text, pair = prose[:1], prose[1:]
    return {"text": text[0], **({"pair": pair[0]} if pair else {}), **found}


def _known(role, names, free):
    """Columns whose names are known for a role, the likeliest first."""
    return [i for name in KNOWN[role] for i in free if plain(names[i]) == name]


def _is_label(rows, column):
    cells = {row[column] for row in rows if column < len(row)} - {None}
    few = len(cells) <= max(2, min(FEW, len(rows) // 2))
    return few or all(is_number(cell) for cell in cells)


def plain(name: str) -> str:
    """A column's name in lower case, without blanks."""
    return name.strip().lower().replace(" ", "_")


def is_number(cell: str | None) -> bool:
    """Whether a cell reads as a number."""
    try:
        float(cell or "")
    except ValueError:
        return False
    return True


# What stands in GLUE's test sets instead of a label.
HIDDEN = "-1"

# So many problems are listed; who mends these sees the next ones.
LISTED = 20


@dataclasses.dataclass(frozen=True)
class Table:
    """A file's rows: texts, second texts and labels (None without), and their lines.

    `columns` says where they were found, for a file of the same kind.
    """

    path: str
    texts: list[str]
    pairs: list[str] | None
    labels: list[str] | None
    lines: list[int]
    columns: Columns = dataclasses.field(default_factory=Columns)

    def __len__(self) -> int:
        return len(self.texts)

    def describe(self, labels: Sequence[str]) -> str:
        """What a person wants to see before training on it; no labels: numbers."""
        where = ", ".join(f"{k} in {v}" for k, v in self.columns.asked.items())
        if not labels:
            return f"{len(self):,} rows with numbers; {where}"
        counts = ", ".join(f"{x} {self.labels.count(x):,}" for x in labels[:LISTED])
        return f"{len(self):,} rows: {counts}; {where}"


class Problems:
    """What is wrong with a file, raised together."""

    def __init__(self, path: str | os.PathLike):
        self.path, self.found = path, []

    def add(self, line: int | str, column: str, value: str, remedy: str) -> None:
        """Takes one problem; where lines say little, `line` is another place."""
        shown = value if len(value) <= 40 else f"{value[:37]}..."
        self.found.append((line, f"{column} {shown!r}: {remedy}"))

    def raise_any(self) -> None:
        """Raises ValueError with the first `LISTED` problems, if there are some."""
        if not self.found:
            return
        count, found = len(self.found), self.found
        if all(isinstance(line, int) for line, _ in found):
            found = sorted(found, key=lambda problem: problem[0])
        head = f"{self.path} has {count} problem{'s' if count > 1 else ''}"
        more = f" (the first {LISTED})" if count > LISTED else ""
        lines = [f"{self.path}:{line}: {said}" for line, said in found[:LISTED]]
        raise ValueError("\n".join([f"{head}{more}:", *lines]))


def read(
    path: str | os.PathLike, columns: Columns | None = None, labelled: bool = True
) -> Table:
    """Reads one file as its ending says: .tsv, .csv or .jsonl.

    Args:
      path: of the file.
      columns: where to find what; None finds it.
      labelled: False for a file to predict, which may have labels; those of GLUE's
        test sets, all -1, are none.

    Raises:
      ValueError: with all problems of the file, up to `LISTED`.
    """
    path, columns, problems = os.fspath(path), columns or Columns(), Problems(path)
    names, lines, rows = cells_of(path, problems)
    if not rows:
        problems.raise_any()
        raise ValueError(f"{path} is empty; it needs rows of a text and a label")
    if names is None:
        names, rows, lines, columns = _headed(path, rows, lines, columns)
    rows, lines = regular(rows, lines, len(names), problems)
    places = find(path, columns, names, rows, labelled)
    found = {role: [row[i] for row in rows] for role, i in places.items()}
    for role, cells in found.items():
        for line, cell in zip(lines, cells, strict=True):
            if not (cell or "").strip():
                column = f"column {names[places[role]]!r},"
                problems.add(line, column, cell or "", f"needs a {role}; fill it in")
    problems.raise_any()
    found = {role: [cell.strip() for cell in cells] for role, cells in found.items()}
    columns = Columns(**{role: names[i] for role, i in places.items()})
    labels = found.get("label")
    if not labelled and labels and set(labels) == {HIDDEN}:
        labels = None
    return Table(path, found["text"], found.get("pair"), labels, lines, columns)


def _headed(path, rows, lines, columns):
    """Names of the columns, and the rows below them."""
    if is_header(rows[0], rows[1:], columns):
        names, rows, lines = [cell.strip() for cell in rows[0]], rows[1:], lines[1:]
        if not rows:
            raise ValueError(f"{path} has a header and no row below it; add rows")
        return names, rows, lines, columns
    width = statistics.mode(map(len, rows))
    if not columns.asked:
        columns = columns.by_width.get(width, columns)
    return [str(i) for i in range(width)], rows, lines, columns


def regular(
    rows: Sequence[list], lines: Sequence[int], width: int, problems: Problems
) -> tuple[list[list], list[int]]:
    """The rows of `width` cells and their lines; the others are problems."""
    kept = []
    for line, row in zip(lines, rows, strict=True):
        if len(row) == width:
            kept.append((row, line))
        else:
            remedy = f"cells: {len(row)}, columns: {width}; mend its separators"
            problems.add(line, "row", "\t".join(map(str, row)), remedy)
    if not kept:
        problems.raise_any()
    rows, lines = map(list, zip(*kept, strict=True))
    return rows, lines


def cells_of(
    path: str | os.PathLike, problems: Problems
) -> tuple[list[str] | None, list[int], list[list]]:
    """Names of the columns where the format has them, lines, and cells by row.

    What is no string in JSON is written as JSON; None stands where a key is missing.
    """
    text, ending = decoded(path), Path(path).suffix.lower()
    if ending in (".jsonl", ".json"):
        found = list(objects(text, problems))
        names = list(dict.fromkeys(key for _, row in found for key in row))
        rows = [[_as_text(row.get(name)) for name in names] for _, row in found]
        return names, [line for line, _ in found], rows
    if ending not in _SEPARATED:
        raise ValueError(f"{path} ends in {ending!r}; give a .tsv, .csv or .jsonl file")
    found = list(_SEPARATED[ending](text, problems))
    return None, [line for line, _ in found], [row for _, row in found]


def decoded(path: str | os.PathLike) -> str:
    """A file of UTF-8; ValueError where it is none."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}; check the path") from None
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"{path}:{line}: byte {content[error.start]:#04x} is not UTF-8; convert "
            f"it: iconv -f latin1 -t utf-8 {path} > mended{Path(path).suffix}"
        ) from None


def _tabbed(text: str, problems: Problems) -> Iterator[tuple[int, list[str]]]:
    # Only \n ends a line, for a text may hold other separators of Unicode; and quotes
    # are letters like any other, as in GLUE's files.
    for line, row in enumerate(text.split("\n"), 1):
        if row.strip():
            yield line, row.removesuffix("\r").split("\t")


def _comma(text: str, problems: Problems) -> Iterator[tuple[int, list[str]]]:
    reader, line = csv.reader(io.StringIO(text, newline=""), strict=True), 1
    try:
        for row in reader:
            if any(row):
                yield line, row
            line = reader.line_num + 1
    except csv.Error as error:
        problems.add(line, "row", str(error), "mend the quotes")


_SEPARATED = {".tsv": _tabbed, ".txt": _tabbed, ".csv": _comma}


def objects(text: str, problems: Problems) -> Iterator[tuple[int, dict]]:
    """The object in each line of JSONL, after the number of the line."""
    for line, row in enumerate(text.split("\n"), 1):
        if not row.strip():
            continue
        try:
            value = json.loads(row)
        except ValueError as error:
            problems.add(line, "row", row, f"is not JSON ({error}); mend it")
            continue
        if isinstance(value, dict):
            yield line, value
        else:
            problems.add(line, "row", row, "is no JSON object; write one a line")


def _as_text(value):
    return value if value is None or isinstance(value, str) else json.dumps(value)


def numbers(table: Table) -> list[float]:
    """The labels as numbers.

    Raises:
      ValueError: with each label that is no finite number.
    """
    problems = Problems(table.path)
    for line, label in zip(table.lines, table.labels, strict=True):
        if not (is_number(label) and math.isfinite(float(label))):
            problems.add(line, "label", label, "is no number; write one")
    problems.raise_any()
    return [float(label) for label in table.labels]


def classes(table: Table, labels: Sequence[str]) -> list[int]:
    """The labels as places in `labels`: their names, or numbers where no name is one.

    Raises:
      ValueError: with each label that is not among them.
    """
    problems, place = Problems(table.path), {name: i for i, name in enumerate(labels)}
    if not any(map(is_number, labels)):
        place |= {str(i): i for i in range(len(labels))}
    known = ", ".join(labels) if len(labels) <= 10 else f"{len(labels)} labels"
    for line, label in zip(table.lines, table.labels, strict=True):
        if label not in place:
            problems.add(line, "label", label, f"is none of {known}; mend it")
    problems.raise_any()
    return [place[label] for label in table.labels]


def overlap(one: Table, other: Table) -> int:
    """How many rows of `other` have the texts of a row of `one`."""
    seen = set(_texts(one))
    return sum(row in seen for row in _texts(other))


def _texts(table):
    return zip(table.texts, table.pairs or table.texts, strict=True)
