"""Input and output of the commands that use a model: records in, results out."""

import contextlib
import dataclasses
import io
import itertools
import json
import os
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from bert_jax import files

if TYPE_CHECKING:
    import numpy as np

INPUT = "a file, - for standard input, or a text in quotes"

TABLES = (".tsv", ".csv")
JSON_LINES = (".jsonl", ".ndjson")

# The format of the output, by the ending of --out.
ENDINGS = {".jsonl": "jsonl", ".txt": "text", ".tsv": "text", ".npy": "npy"}


@dataclasses.dataclass(frozen=True)
class Record:
    """One input.

    Attributes:
      place: its file and line, for errors.
      fields: its values by name; a line of text has the field `text`.
    """

    place: str
    fields: dict[str, Any]

    def text(self, field: str) -> str:
        """The string in a field. Raises ValueError if there is none."""
        value = self.fields.get(field)
        if isinstance(value, str):
            return value
        if field in self.fields:
            raise ValueError(
                f"{self.place}: the field {field!r} is {value!r:.60}, not a string"
            )
        names = ", ".join(self.fields) or "no field"
        raise ValueError(
            f"{self.place}: there is no field {field!r} but {names}; rename one, or "
            "name it by its flag"
        )

    def strings(self, field: str) -> list[str]:
        """The list of strings in a field. Raises ValueError if there is none."""
        value = self.fields.get(field)
        if isinstance(value, list) and value and all(isinstance(x, str) for x in value):
            return value
        raise ValueError(
            f"{self.place}: the field {field!r} is {value!r:.60}, not a list of strings"
        )


Write = Callable[[Record, Any], None]


def has_field(block: Sequence[Record], field: str) -> bool:
    """True if all records have a field, False if none has. Otherwise a ValueError."""
    first = field in block[0].fields
    for record in block:
        if (field in record.fields) != first:
            here, there = ("no", "has one") if first else ("a", "has none")
            raise ValueError(
                f"{record.place}: there is {here} field {field!r}, but "
                f"{block[0].place} {there}; give it to all or to none"
            )
    return first


def read(inputs: Sequence[str], labelled: bool = False) -> Iterator[Record]:
    """Reads inputs one after the other, a line at a time.

    The name of a file is read, `-` is standard input, and an argument with a space is
    itself a text; other arguments are files that do not exist, an error. Each line is a
    text. If the name ends in .jsonl, or the first line of standard input begins an
    object, each line is a JSON object, and empty lines are skipped. The rows of a .tsv
    or a .csv are read as in training, with a `label` if they are `labelled`, and are
    held in memory.
    """
    for number, name in enumerate(inputs, 1):
        if name == "-" or os.path.isfile(name):
            yield from _read_file(name, labelled)
        elif any(map(str.isspace, name)):
            yield Record(f"text {number}", {"text": name})
        else:
            files.local_path(name)  # raises for an address
            raise ValueError(
                f"there is no file {name!r}; check the path (a text of one word comes "
                "through a pipe: echo WORD | bert-jax …)"
            )


def count(inputs: Sequence[str]) -> int | None:
    """The largest possible number of records; None if only reading tells."""
    total = 0
    for name in inputs:
        if name == "-" or _ending(name) != Path(name).suffix:
            return None
        total += _lines_in(name) if os.path.isfile(name) else 1
    return total


def announce_terminal(inputs: Sequence[str]) -> None:
    """Tells a person at a terminal that the command waits for lines."""
    if "-" in inputs and sys.stdin.isatty():
        print("reads lines from the terminal; Ctrl-D ends", file=sys.stderr)


def _lines_in(name: str) -> int:
    """Lines of a file, counted in chunks."""
    total = 1
    with open(name, "rb") as file:
        while chunk := file.read(1 << 20):
            total += chunk.count(b"\n")
    return total


def _read_file(name: str, labelled: bool) -> Iterator[Record]:
    # Imported here, for it is slow: it has the splitter of sentences.
    from bert_jax.data import corpus

    if _ending(name) in TABLES:
        yield from _read_table(name, labelled)
        return
    shown = "standard input" if name == "-" else name
    lines = corpus.lines(name)
    first = next(lines, None)
    if first is None:
        return
    is_json = _ending(name) in JSON_LINES
    is_json = is_json or (name == "-" and first[1].startswith("{"))
    for number, line in itertools.chain([first], lines):
        place = f"{shown}:{number}"
        if not is_json:
            yield Record(place, {"text": line})
        elif line:
            yield Record(place, _parse_object(place, line))


def _ending(name: str) -> str:
    """The ending of a name, without that of a compressed file."""
    path = Path(name)
    is_compressed = path.suffix in (".gz", ".bz2", ".xz")
    return (path.with_suffix("") if is_compressed else path).suffix


def _read_table(name: str, labelled: bool) -> Iterator[Record]:
    from bert_jax.data import tables

    table = tables.read(name, labelled=labelled)
    columns = {"text": table.texts, "pair": table.pairs, "label": table.labels}
    columns = {field: values for field, values in columns.items() if values}
    for i, line in enumerate(table.lines):
        fields = {field: values[i] for field, values in columns.items() if values}
        yield Record(f"{name}:{line}", fields)


def _parse_object(place: str, line: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f'{place}: not JSON ({error}); each line is an object, as {{"text": "..."}}'
        ) from None
    if not isinstance(value, dict):
        raise ValueError(f"{place}: {line:.60} is not a JSON object with fields")
    return value


def format_of(args: Namespace, field: str) -> str:
    """The format of the results: "text", "jsonl" or "npy".

    It is that of `--format`, or of the ending of `--out`; otherwise a terminal gets
    text, a pipe or a file JSONL.
    """
    ending = ENDINGS.get(args.out.suffix) if args.out else None
    default = "text" if not args.out and sys.stdout.isatty() else "jsonl"
    form = args.format or ending or default
    if form == "npy" and field != "vector":
        raise ValueError("only embed writes .npy; name --out with .jsonl or .txt")
    if form == "npy" and not args.out:
        raise ValueError("the format npy needs a file; give --out FILE.npy")
    return form


@contextlib.contextmanager
def writer(
    args: Namespace,
    field: str,
    as_json: Callable[[Any], Any],
    as_text: Callable[[Record, Any], str],
) -> Iterator[Write]:
    """A function that writes one result; a file appears when all are written.

    Args:
      args: `out` and `format`.
      field: the name of the result in JSONL.
      as_json: a result as a value for JSON.
      as_text: a record and its result as lines for a person.
    """
    form = format_of(args, field)
    if form == "npy":
        with files.new_file(args.out, "w+b") as file, _matrix_writer(file) as write:
            yield write
        return
    with _text_file(args.out) if args.out else _stdout() as file:

        def write_line(record: Record, result: Any) -> None:
            if form == "text":
                print(as_text(record, result), file=file)
                return
            _check_free(record, field)
            fields = record.fields | {field: as_json(result)}
            print(json.dumps(fields, ensure_ascii=False), file=file)

        yield write_line


def _check_free(record: Record, field: str) -> None:
    """Raises ValueError if the input already has the field of the result."""
    if field in record.fields:
        raise ValueError(
            f"{record.place}: there is a field {field!r} already, the name of the "
            "result; rename it"
        )


def check_out(path: Path | None) -> None:
    """Raises ValueError for an `--out` that cannot become a file."""
    if path is None:
        return
    path = files.local_path(path)
    if path.is_dir():
        raise ValueError(f"--out {path} is a directory; name a file")
    if not path.parent.is_dir():
        raise ValueError(f"--out {path}: there is no directory {path.parent}; make it")


def _text_file(path: Path) -> contextlib.AbstractContextManager[IO]:
    return files.new_file(path, errors="backslashreplace")


@contextlib.contextmanager
def _stdout() -> Iterator[IO]:
    # A lone surrogate becomes its escape in JSON.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
    yield sys.stdout


@contextlib.contextmanager
def _matrix_writer(file: IO) -> Iterator[Write]:
    """Writes the rows of a matrix as they come; the header is completed at the end."""
    count, width = 0, 0
    _write_header(file, 0, 0)

    def write(_: Record, row: "np.ndarray") -> None:
        nonlocal count, width
        file.write(row.tobytes())
        count, width = count + 1, len(row)

    yield write
    file.seek(0)
    _write_header(file, count, width)


def _write_header(file: IO, count: int, width: int) -> None:
    import numpy as np  # not for --help

    header = {"descr": "<f4", "fortran_order": False, "shape": (count, width)}
    np.lib.format.write_array_header_1_0(file, header)
