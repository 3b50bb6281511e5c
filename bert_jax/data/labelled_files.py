"""Reading labelled files: decoding, cells, JSON lines, and a list of all problems."""

import csv
import io
import itertools
import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bert_jax.data.decoding import COMPRESSED, ending, read_text

Cell = str | None

# Endings of files whose rows are objects.
OBJECTS = (".jsonl", ".ndjson", ".json", ".parquet")

# The start of a JSON array of objects.
ARRAY = re.compile(r"\s*\[\s*(\{|\]\s*$)")

# An error lists so many problems; the next ones show once these are fixed.
MAX_LISTED = 20


class Problems:
    """The problems of one file, collected to be raised together."""

    def __init__(self, path: str | os.PathLike):
        self.path = path
        self.entries: list[tuple[int | str, str]] = []

    def add(self, line: int | str, column: str, value: str, remedy: str) -> None:
        """Adds a problem; `line` may be another kind of place, as a path in JSON."""
        shown = value if len(value) <= 40 else f"{value[:37]}..."
        self.entries.append((line, f"{column} {shown!r}: {remedy}"))

    def raise_any(self) -> None:
        """Raises ValueError with the first `MAX_LISTED` problems, if there are any."""
        if not self.entries:
            return
        count = len(self.entries)
        numbered = [(x, text) for x, text in self.entries if isinstance(x, int)]
        in_order: Sequence[tuple[int | str, str]] = self.entries
        if len(numbered) == count:
            in_order = sorted(numbered, key=lambda entry: entry[0])
        head = f"{self.path} has {count} problem{'s' if count > 1 else ''}"
        more = f" (the first {MAX_LISTED})" if count > MAX_LISTED else ""
        lines = [f"{self.path}:{line}: {text}" for line, text in in_order[:MAX_LISTED]]
        raise ValueError("\n".join([f"{head}{more}:", *lines]))


def files_by_split(
    train: str, dev: str, test: Sequence[str], field: str = "test"
) -> dict[str, str]:
    """Files by split: "train", "eval", and each `test` file under its stem.

    Raises ValueError where two splits have one name; `field` names the option that
    `test` comes from.
    """
    by_split = {"train": train, "eval": dev}
    for file in test:
        path = Path(file)
        compressed = path.suffix.lower() in COMPRESSED
        name = path.with_suffix("").stem if compressed else path.stem
        if name in by_split:
            raise ValueError(
                f"{field} has a file named {name!r}, which another split is named too; "
                "rename it"
            )
        by_split[name] = file
    return by_split


def read_cells(
    path: str | os.PathLike, problems: Problems
) -> tuple[list[str] | None, list[int], list[list[Cell]]]:
    """Column names where the format has them, line numbers, and cells by row.

    A value that is not a string in JSON is written as JSON; a missing key gives None.
    """
    kind = ending(path)
    if kind in OBJECTS:
        objects = list(read_objects(path, problems))
        names = list(dict.fromkeys(key for _, row in objects for key in row))
        cells = [[_as_text(row.get(name)) for name in names] for _, row in objects]
        return names, [line for line, _ in objects], cells
    if kind not in _SEPARATED:
        read_text(path)  # raises for a file that is not text
        raise ValueError(
            f"{path} ends in {kind!r}; give a .tsv, .csv, .jsonl or .parquet file"
        )
    rows = list(_SEPARATED[kind](read_text(path), problems))
    return None, [line for line, _ in rows], [row for _, row in rows]


def drop_irregular(
    rows: Sequence[list[Cell]], lines: Sequence[int], width: int, problems: Problems
) -> tuple[list[list[Cell]], list[int]]:
    """The rows of `width` cells and their lines; adds the others to `problems`."""
    regular, their_lines = [], []
    for line, row in zip(lines, rows, strict=True):
        if len(row) == width:
            regular.append(row)
            their_lines.append(line)
        else:
            remedy = f"cells: {len(row)}, columns: {width}; fix its separators"
            problems.add(line, "row", "\t".join(map(str, row)), remedy)
    if not regular:
        problems.raise_any()
    return regular, their_lines


def read_objects(
    path: str | os.PathLike, problems: Problems
) -> Iterator[tuple[int, dict]]:
    """The line, or the number of the row, and the object of each row of `OBJECTS`."""
    if ending(path) == ".parquet":
        return _parquet_objects(path)
    return json_objects(read_text(path), problems)


def json_objects(text: str, problems: Problems) -> Iterator[tuple[int, dict]]:
    """The line and the object of each row of JSONL, or of a JSON array of objects."""
    is_array = ARRAY.match(text) or text[:1] == "[" and ending(problems.path) == ".json"
    values = _array_values if is_array else _line_values
    for line, value, shown in values(text, problems):
        if isinstance(value, dict):
            yield line, value
        else:
            problems.add(line, "row", shown, "is not a JSON object; write one a line")


def _line_values(text: str, problems: Problems) -> Iterator[tuple[int, Any, str]]:
    """The line, the value and the JSON of each line."""
    for line, row in enumerate(text.split("\n"), 1):
        if not row.strip():
            continue
        try:
            yield line, json.loads(row), row
        except (ValueError, RecursionError) as error:
            if row.strip() == "{" and (whole := _single_object(text)):
                yield line, whole, text
                return
            problems.add(line, "row", row, f"is not JSON ({error}); fix it")


def _single_object(text: str) -> dict | None:
    """The object that a whole file holds; None if it holds something else."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _array_values(text: str, problems: Problems) -> Iterator[tuple[int, Any, str]]:
    """The line, the value and the JSON of each item of an array."""
    decoder, line, counted = json.JSONDecoder(), 1, 0
    start = _skip_blanks(text, text.index("[") + 1)
    while text[start : start + 1] != "]":
        line, counted = line + text.count("\n", counted, start), start
        try:
            value, end = decoder.raw_decode(text, start)
            yield line, value, text[start:end]
            end = _skip_blanks(text, end)
            if text[end : end + 1] not in (",", "]"):
                raise json.JSONDecodeError("Expecting ',' or ']'", text, end)
        except (json.JSONDecodeError, RecursionError) as error:
            problems.add(
                line, "row", text[start : start + 60], f"is not JSON ({error}); fix it"
            )
            return
        start = _skip_blanks(text, end + (text[end] == ","))


def _skip_blanks(text: str, position: int) -> int:
    """The position of the first character that is no blank, from `position` on."""
    while text[position : position + 1].isspace():
        position += 1
    return position


def _parquet_objects(path: str | os.PathLike) -> Iterator[tuple[int, dict]]:
    """The number from 1 and the object of each row of a Parquet table."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise ValueError(
            f"{path} is a Parquet table, which the package pyarrow reads; install it "
            "with: pip install pyarrow"
        ) from None
    try:
        with parquet.ParquetFile(path) as table:
            batches = (batch.to_pylist() for batch in table.iter_batches())
            yield from enumerate(itertools.chain.from_iterable(batches), 1)
    except (OSError, pyarrow.ArrowException) as error:
        reason = str(error).splitlines()[0][:150]
        raise ValueError(f"{path} cannot be read ({reason}); fetch it again") from None


def _as_text(value: object) -> Cell:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, default=str)


def _tabbed(text: str, problems: Problems) -> Iterator[tuple[int, list[Cell]]]:
    # Only \n ends a line, for a text may hold other separators of Unicode; and quotes
    # are letters like any other, as in GLUE's files.
    for line, row in enumerate(text.split("\n"), 1):
        if row.strip():
            yield line, [*row.removesuffix("\r").split("\t")]


def _comma(text: str, problems: Problems) -> Iterator[tuple[int, list[Cell]]]:
    problems_with_commas = Problems(problems.path)
    rows = list(_delimited(text, ",", problems_with_commas))
    if all(len(row) == 1 for _, row in rows):
        # A spreadsheet writes ; where a comma is the decimal point. In prose a blank
        # follows it.
        others = list(_delimited(text, ";", Problems(problems.path)))
        widths = {len(row) for _, row in others}
        cells = (cell or "" for _, row in others for cell in row[1:])
        if len(widths) == 1 and widths != {1} and not any(x[:1] == " " for x in cells):
            return iter(others)
    problems.entries += problems_with_commas.entries
    return iter(rows)


def _delimited(
    text: str, separator: str, problems: Problems
) -> Iterator[tuple[int, list[Cell]]]:
    content = io.StringIO(text, newline="")
    reader, line = csv.reader(content, delimiter=separator, strict=True), 1
    try:
        for row in reader:
            if any(row):
                yield line, [*row]
            line = reader.line_num + 1
    except csv.Error as error:
        problems.add(line, "row", str(error), "fix the quotes")


_SEPARATED = {".tsv": _tabbed, ".txt": _tabbed, ".csv": _comma}


def one_column(path: str | os.PathLike) -> str:
    """The sentence on a table in which one column was found."""
    remedy = "separate the cells by tabs, or name a file with commas .csv"
    if ending(path) == ".csv":
        remedy = "separate the cells by commas, or name a file with tabs .tsv"
    if ending(path) in OBJECTS:
        remedy = "give each object a text and a label"
    return f"{path}: one column was found; {remedy}"
