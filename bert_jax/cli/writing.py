"""Where results go: JSONL, text for a person, or a matrix, to a file or a pipe."""

import contextlib
import io
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.cli.reading import Record

Write = Callable[[Record, Any], None]

ENDINGS = {".jsonl": "jsonl", ".txt": "text", ".tsv": "text", ".npy": "npy"}


def form_of(args: Any) -> str:
    """How results are written: as `--format` says, the ending of `--out`, or where
    they go: text to a terminal, JSONL to a pipe or a file."""
    ending = ENDINGS.get(args.out.suffix) if args.out else None
    default = "text" if not args.out and sys.stdout.isatty() else "jsonl"
    form = args.format or ending or default
    if form == "npy" and args.field != "vector":
        raise ValueError("only embed writes .npy; name --out with .jsonl or .txt")
    if form == "npy" and not args.out:
        raise ValueError("a .npy needs a file to go to; give --out FILE.npy")
    return form


@contextlib.contextmanager
def writer(args: Any, as_json: Callable, as_text: Callable) -> Iterator[Write]:
    """Gives a function that writes one result; a file appears when all are written.

    Args:
      args: with `out`, `format` and `field`, under which JSONL has the results.
      as_json: a result as plain values.
      as_text: a record and its result as lines for a person.
    """
    form = form_of(args)
    if form == "npy":
        with _file(args.out, "w+b") as file, _rows(file) as write:
            yield write
        return
    with _file(args.out, "w") if args.out else _stdout() as file:

        def write(record: Record, found: Any) -> None:
            if form == "text":
                print(as_text(record, found), file=file)
                return
            refuse_taken(record, args.field)
            fields = record.fields | {args.field: as_json(found)}
            print(json.dumps(fields, ensure_ascii=False), file=file)

        yield write


def refuse_taken(record: Record, field: str) -> None:
    """Raises ValueError where the input has the field that results go to."""
    if field in record.fields:
        raise ValueError(
            f"{record.place}: there is a field {field!r} already, where the result "
            "goes; rename it"
        )


@contextlib.contextmanager
def _file(path: Path, mode: str) -> Iterator[io.IOBase]:
    """A file that takes its name when it is whole."""
    if path.is_dir():
        raise ValueError(f"--out {path} is a directory; name a file")
    if not path.parent.is_dir():
        raise ValueError(f"--out {path}: there is no directory {path.parent}; make it")
    half = path.with_name(f".{path.name}.unfinished")
    text = {} if "b" in mode else {"encoding": "utf-8", "errors": "backslashreplace"}
    try:
        with open(half, mode, **text) as file:
            yield file
        half.replace(path)
    except BaseException:
        half.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def _stdout() -> Iterator[io.IOBase]:
    # A lone surrogate becomes the escape that JSON has for it.
    sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
    yield sys.stdout


@contextlib.contextmanager
def _rows(file: io.IOBase) -> Iterator[Write]:
    """Writes rows of one matrix as they come; the header is filled in at the end."""
    count, width = 0, 0
    _header(file, 0, 0)

    def write(_: Record, row: np.ndarray) -> None:
        nonlocal count, width
        file.write(row.tobytes())
        count, width = count + 1, len(row)

    yield write
    file.seek(0)
    _header(file, count, width)


def _header(file, count, width):
    header = {"descr": "<f4", "fortran_order": False, "shape": (count, width)}
    np.lib.format.write_array_header_1_0(file, header)
