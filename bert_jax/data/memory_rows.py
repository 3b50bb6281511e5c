"""Labelled rows in memory, written to a file so that they are read like any other."""

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bert_jax.files import make_directory, write_text

# Columns of rows without names are numbered, as in files without a header.
Row = Mapping[str, Any] | Sequence[Any]


def is_rows(value: Any) -> bool:
    """True for rows in memory: no path, and no list of paths."""
    if isinstance(value, str | os.PathLike):
        return False
    if isinstance(value, list | tuple):
        return not all(isinstance(x, str | os.PathLike) for x in value)
    return _method(value) is not None or isinstance(value, Iterable)


def write(rows: Any, path: Path, name: str) -> None:
    """Writes rows to a .jsonl file, row n in line n.

    Args:
      rows: dictionaries or tuples; a table of pandas, Arrow or Polars; a
        `datasets.Dataset`, or a `tf.data.Dataset` of dictionaries.
      path: of the file.
      name: of the rows, for errors.

    Raises:
      ValueError: for no row, and for one that is neither a dictionary nor a tuple.
    """
    method = _method(rows)
    lines = []
    for number, row in enumerate(rows if method is None else method(), 1):
        if isinstance(row, list | tuple):
            row = {str(i): value for i, value in enumerate(row)}
        if not isinstance(row, Mapping):
            raise ValueError(
                f"{name}:{number}: row {row!r:.60}: is no dictionary and no tuple; "
                "give rows such as {'text': …, 'label': …}"
            )
        present = {str(key): x for key, x in row.items() if not _is_missing(x)}
        lines.append(json.dumps(present, ensure_ascii=False, default=_plain) + "\n")
    if not lines:
        raise ValueError(f"{name} has no row; give some")
    make_directory(path.parent)
    write_text(path, "".join(lines))


@contextlib.contextmanager
def errors_named(names: Mapping[str, str]) -> Iterator[None]:
    """Gives the files of rows in memory, in errors, the names of these rows.

    Args:
      names: of the rows by the path of their file.
    """
    try:
        yield
    except ValueError as error:
        if len(error.args) == 1:
            text = str(error.args[0])
            for path, name in names.items():
                text = text.replace(path, name)
            error.args = (text,)
        raise


def _method(rows: Any) -> Any:
    """The function that gives the rows of a table; None for what gives them itself."""
    for name in ("to_pylist", "to_dicts", "as_numpy_iterator"):
        if callable(method := getattr(rows, name, None)):
            return method
    if (
        callable(method := getattr(rows, "to_dict", None))
        and getattr(rows, "columns", None) is not None
    ):
        return lambda: method("records")
    return None


def _is_missing(value: Any) -> bool:
    """True for None and for NaN, which pandas has where a cell is empty."""
    return value is None or (isinstance(value, float) and value != value)


def _plain(value: Any) -> Any:
    """A value of NumPy or TensorFlow as one that JSON has."""
    if isinstance(value, bytes):
        return value.decode()
    return value.tolist() if callable(getattr(value, "tolist", None)) else str(value)
