"""Reading labelled files: decoding, cells, JSON lines, and a list of all problems."""

import csv
import io
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from bert_jax import files

Cell = str | None

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
        name = Path(file).stem
        if name in by_split:
            raise ValueError(
                f"{field} has a file named {name!r}, which another split is named too; "
                "rename it"
            )
        by_split[name] = file
    return by_split


def read_text(path: str | os.PathLike) -> str:
    """The text of a UTF-8 file; raises ValueError with the first byte that is not."""
    try:
        content = files.local_path(path).read_bytes()
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}; check the path") from None
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"{path}:{line}: byte {content[error.start]:#04x} is not UTF-8; convert "
            f"it: iconv -f latin1 -t utf-8 {path} > converted{Path(path).suffix}"
        ) from None


def read_cells(
    path: str | os.PathLike, problems: Problems
) -> tuple[list[str] | None, list[int], list[list[Cell]]]:
    """Column names where the format has them, line numbers, and cells by row.

    A value that is not a string in JSON is written as JSON; a missing key gives None.
    """
    text, ending = read_text(path), Path(path).suffix.lower()
    if ending in (".jsonl", ".json"):
        objects = list(json_objects(text, problems))
        names = list(dict.fromkeys(key for _, row in objects for key in row))
        cells = [[_as_text(row.get(name)) for name in names] for _, row in objects]
        return names, [line for line, _ in objects], cells
    if ending not in _SEPARATED:
        raise ValueError(f"{path} ends in {ending!r}; give a .tsv, .csv or .jsonl file")
    rows = list(_SEPARATED[ending](text, problems))
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


def json_objects(text: str, problems: Problems) -> Iterator[tuple[int, dict]]:
    """The line number and the object of each line of JSONL."""
    for line, row in enumerate(text.split("\n"), 1):
        if not row.strip():
            continue
        try:
            value = json.loads(row)
        except ValueError as error:
            problems.add(line, "row", row, f"is not JSON ({error}); fix it")
            continue
        if isinstance(value, dict):
            yield line, value
        else:
            problems.add(line, "row", row, "is not a JSON object; write one a line")


def _as_text(value: object) -> Cell:
    return value if value is None or isinstance(value, str) else json.dumps(value)


def _tabbed(text: str, problems: Problems) -> Iterator[tuple[int, list[Cell]]]:
    # Only \n ends a line, for a text may hold other separators of Unicode; and quotes
    # are letters like any other, as in GLUE's files.
    for line, row in enumerate(text.split("\n"), 1):
        if row.strip():
            yield line, [*row.removesuffix("\r").split("\t")]


def _comma(text: str, problems: Problems) -> Iterator[tuple[int, list[Cell]]]:
    reader, line = csv.reader(io.StringIO(text, newline=""), strict=True), 1
    try:
        for row in reader:
            if any(row):
                yield line, [*row]
            line = reader.line_num + 1
    except csv.Error as error:
        problems.add(line, "row", str(error), "fix the quotes")


_SEPARATED = {".tsv": _tabbed, ".txt": _tabbed, ".csv": _comma}
