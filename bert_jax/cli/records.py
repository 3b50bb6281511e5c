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
from bert_jax.data import decoding
from bert_jax.data.decoding import COMPRESSED, ending

if TYPE_CHECKING:
    import numpy as np

INPUT = "a file, - for standard input, or a text in quotes"

TABLES = (".tsv", ".csv")
# Objects that are read line by line, and files that are held in memory.
JSON_LINES, OBJECTS = (".jsonl", ".ndjson"), (".json", ".parquet")

# The format of the output, by the ending of --out.
ENDINGS = {
    ".jsonl": "jsonl",
    ".txt": "text",
    ".tsv": "text",
    ".npy": "npy",
    ".npz": "npz",
}

# The name of the result of `embed --sparse`.
SPARSE = "weights"


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


@dataclasses.dataclass(frozen=True)
class Fields:
    """The columns of tables to read: those that hold the text, a pair, a label.

    None finds a column; one that is named keeps its name as a field.
    """

    text: str | None = None
    pair: str | None = None
    labelled: bool = False


def read(inputs: Sequence[str], fields: Fields | None = None) -> Iterator[Record]:
    """Reads inputs one after the other, a line at a time.

    The name of a file is read, `-` is standard input, and an argument with a space is
    itself a text; other arguments are files that do not exist, an error. Each line is a
    text. If the name ends in .jsonl, or the first line of standard input begins an
    object, each line is a JSON object, and empty lines are skipped. These files are
    held in memory: a JSON array of objects, SQuAD's .json and .parquet; .tsv and .csv,
    whose columns are found as in training, choices too; and .conll, .conllu and tables
    with a word a line, whose sentences have the fields `text` and `tokens`.
    """
    for number, name in enumerate(inputs, 1):
        if name == "-" or os.path.isfile(name):
            yield from _read_file(name, fields or Fields())
        elif any(map(str.isspace, name)):
            yield Record(f"text {number}", {"text": name})
        else:
            files.local_path(name)  # raises for an address
            raise ValueError(
                f"there is no file {name!r}; check the path (a text of one word comes "
                "through a pipe: echo WORD | bert-jax …)"
            )


def one_text(argument: str, field: str = "text") -> str:
    """The text of an argument that is read as by `read`: all lines of a text, or a row.

    Raises ValueError for a file with more rows than one.
    """
    records = list(read([argument]))
    if all(record.fields.keys() == {"text"} for record in records):
        return "\n".join(record.text("text") for record in records).strip()
    if len(records) > 1:
        raise ValueError(
            f"{argument} has {len(records):,} rows, and one text is needed; give a "
            "file of one row, or the text in quotes"
        )
    return records[0].text(field)


def count(inputs: Sequence[str]) -> int | None:
    """The largest possible number of records; None if only reading tells."""
    total = 0
    for name in inputs:
        path = Path(name)
        if name == "-" or path.suffix in (*COMPRESSED, *OBJECTS):
            return None
        total += _lines_in(name) if os.path.isfile(name) else 1
    return total


def announce_terminal(inputs: Sequence[str]) -> None:
    """Tells a person at a terminal that the command waits for lines."""
    if "-" in inputs and sys.stdin.isatty():
        print("reads lines from the terminal; Ctrl-D ends", file=sys.stderr)


def _lines_in(name: str) -> int:
    """Lines of a file, counted in chunks; the last one may have no end."""
    total, last = 0, b"\n"
    with open(name, "rb") as file:
        while chunk := file.read(1 << 20):
            total, last = total + chunk.count(b"\n"), chunk[-1:]
    return total + (last != b"\n")


def _read_file(name: str, fields: Fields) -> Iterator[Record]:
    # Imported here, as below, for it is slow.
    from bert_jax.data import conll, detection

    kind = ending(name)
    known = (*TABLES, *conll.ENDINGS)
    task = detection.task_of(name) if kind in known and not fields.text else None
    if kind in OBJECTS:
        yield from _read_objects(name, None)
    elif task == "tag":
        yield from _read_sentences(name)
    elif task == "choose":
        yield from _read_choices(name)
    elif kind in TABLES:
        yield from _read_table(name, fields)
    else:
        yield from _read_lines(name, kind in JSON_LINES)


def _read_lines(name: str, is_json: bool) -> Iterator[Record]:
    """Each line as a record; standard input may hold JSON."""
    content = decoding.lines(name)
    first = next(content, None)
    if first is None:
        return
    content, start = itertools.chain([first], content), first[1].replace(" ", "")
    if (is_json or name == "-") and (start == "[" or start.startswith("[{")):
        yield from _read_objects(name, "\n".join(line for _, line in content))
        return
    is_json = is_json or (name == "-" and start.startswith("{"))
    for number, line in content:
        place = f"{decoding.name_of(name)}:{number}"
        if not is_json:
            yield Record(place, {"text": line})
        elif line:
            yield Record(place, _parse_object(place, line))


def _read_objects(name: str, text: str | None) -> Iterator[Record]:
    """The rows of a JSON array, of JSON lines, or of Parquet; of `text` if given."""
    from bert_jax.data import labelled_files

    shown = decoding.name_of(name)
    problems = labelled_files.Problems(shown)
    rows = (
        labelled_files.read_objects(name, problems)
        if text is None
        else labelled_files.json_objects(text, problems)
    )
    records = [Record(f"{shown}:{line}", row) for line, row in rows]
    problems.raise_any()
    if len(records) == 1 and isinstance(records[0].fields.get("data"), list):
        yield from _read_questions(name)
    else:
        yield from records


def _read_questions(name: str) -> Iterator[Record]:
    """The questions of SQuAD's own .json."""
    from bert_jax.data import squad

    for row in squad.read(name, labelled=False):
        fields = {"id": row.id, "question": row.question, "context": row.context}
        yield Record(f"{name}: {row.id}", fields)


def _read_choices(name: str) -> Iterator[Record]:
    from bert_jax.data import choices

    table = choices.read(name, labelled=False)
    for i, line in enumerate(table.lines):
        fields = {"context": table.contexts[i], "choices": table.choices[i]}
        if table.columns.opening:
            fields["opening"] = table.openings[i]
        yield Record(f"{name}:{line}", fields)


def _read_sentences(name: str) -> Iterator[Record]:
    from bert_jax.data import conll

    sentences = conll.read(name, labelled=False)
    for words, lines in zip(sentences.words, sentences.lines, strict=True):
        fields = {"text": " ".join(words), "tokens": words}
        yield Record(f"{name}:{lines[0]}", fields)


def _read_table(name: str, fields: Fields) -> Iterator[Record]:
    """The rows of a table: its texts, and its other columns by their names."""
    from bert_jax.data import tables

    named = tables.Columns(fields.text, fields.pair)
    table = tables.read(name, named, labelled=fields.labelled)
    for role, column in named.named.items():
        if column != getattr(table.columns, role):
            has = [x for x in (table.columns.text, table.columns.pair) if x is not None]
            raise ValueError(
                f"{name}: there is no column {column!r} for the {role}; it has "
                f"{', '.join(map(str, [*has, *table.others]))}"
            )
    columns = {
        fields.text or "text": table.texts,
        fields.pair or "pair": table.pairs,
        "label": table.labels,
    }
    columns = {**table.others, **{k: v for k, v in columns.items() if v}}
    for i, line in enumerate(table.lines):
        row = {field: values[i] for field, values in columns.items() if values}
        yield Record(f"{name}:{line}", row)


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
    """The format of the results: "text", "jsonl", "npy" or "npz".

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
    if form == "npz" and field != SPARSE:
        raise ValueError("only embed --sparse writes .npz; name --out with .jsonl")
    if form == "npz" and not args.out:
        raise ValueError("the format npz needs a file; give --out FILE.npz")
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
    if form == "npz":
        with files.new_file(args.out, "w+b") as file, _sparse_writer(file) as write:
            yield write
        return
    from bert_jax.data import progress

    on_terminal = not args.out and sys.stdout.isatty()
    aside = progress.above_bars if on_terminal else contextlib.nullcontext
    with _text_file(args.out) if args.out else _stdout() as file:

        def write_line(record: Record, result: Any) -> None:
            if form == "text":
                line = as_text(record, result)
            else:
                _check_free(record, field)
                fields = record.fields | {field: as_json(result)}
                line = json.dumps(fields, ensure_ascii=False, default=str)
            with aside():
                print(line, file=file)

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


@contextlib.contextmanager
def _sparse_writer(file: IO) -> Iterator[Write]:
    """Writes all rows of a sparse matrix at the end; they are small enough to hold."""
    from scipy import sparse

    rows: list[Any] = []
    yield lambda record, row: rows.append(row)
    sparse.save_npz(
        file, sparse.vstack(rows, "csr") if rows else sparse.csr_matrix((0, 0))
    )


def _write_header(file: IO, count: int, width: int) -> None:
    import numpy as np  # not for --help

    header = {"descr": "<f4", "fortran_order": False, "shape": (count, width)}
    np.lib.format.write_array_header_1_0(file, header)
