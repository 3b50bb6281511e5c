"""Paths, files that appear when they are whole, JSON, readable errors and counts."""

import contextlib
import errno
import json
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

# Errors that Python raises on content of the wrong type or with parts missing.
_CONTENT_ERRORS = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    RecursionError,
    TypeError,
    UnicodeError,
    json.JSONDecodeError,
)

# The endings of files that hold a model in some format.
_MODEL_FILES = frozenset(
    ".bin .ckpt .gguf .h5 .keras .mlir .onnx .pb .pkl .pt .pth .safetensors "
    ".stablehlo .tflite .torchscript .zip".split()
)

# An error names so many of its causes.
_MAX_LISTED = 3

# `gs://bucket/x`, and `gs:/bucket/x`, which `Path` makes of it.
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/|.*://")


# The files that `new_file` is writing.
_unfinished: set[Path] = set()


class WriteError(OSError):
    """A file or directory could not be written; the message has its path."""


def local_path(path: str | os.PathLike) -> Path:
    """A path of the user, with `~` for the home directory.

    Every path that a user gives passes through here. Raises ValueError for the address
    of a bucket or a server, which would become a local directory named `gs:`.
    """
    text = os.fspath(path)
    if _ADDRESS.match(text):
        raise ValueError(
            f"{text} is an address, and only files on a local or mounted disk are read "
            "and written; give a path on one"
        )
    return Path(text).expanduser()


def make_directory(path: Path) -> Path:
    """The directory, made with its parents unless it exists."""
    with write_errors(path):
        path.mkdir(parents=True, exist_ok=True)
    return path


@contextlib.contextmanager
def new_file(path: Path, mode: str = "w", errors: str | None = None) -> Iterator[IO]:
    """An open file that takes its name when it is whole; UTF-8 unless `mode` has "b".

    If anything fails, nothing is left behind and an old file of that name stays.
    Raises WriteError where it cannot be written.
    """
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    _unfinished.add(unfinished)
    text: Any = {"encoding": "utf-8", "errors": errors, "newline": "\n"}
    with write_errors(path, unfinished):
        try:
            with open(unfinished, mode, **({} if "b" in mode else text)) as file:
                yield file
            unfinished.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                unfinished.unlink()
            raise
        finally:
            _unfinished.discard(unfinished)


def discard_unfinished() -> None:
    """Deletes what `new_file` is writing; the process is to end at once."""
    for path in list(_unfinished):
        with contextlib.suppress(OSError):
            path.unlink()


def write_text(path: Path, text: str) -> None:
    """Writes atomically: a reader sees the old file or the new one."""
    with new_file(path) as file:
        file.write(text)


def write_bytes(path: Path, content: bytes | bytearray) -> None:
    """Writes atomically: a reader sees the old file or the new one."""
    with new_file(path, "wb") as file:
        file.write(content)


def counted(count: int, noun: str) -> str:
    """A count with its noun, in the plural unless it is 1.

    >>> counted(1, "row"), counted(1000, "row")
    ('1 row', '1,000 rows')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def write_json(path: Path, content: Any) -> None:
    """Writes atomically: a reader sees the old file or the new one."""
    text = json.dumps(content, indent=2, ensure_ascii=False, default=str)
    write_text(path, f"{text}\n")


@contextlib.contextmanager
def write_errors(path: Path, *others: Path) -> Iterator[None]:
    """Turns an OSError of writing `path` into a WriteError, a sentence with the path.

    `others` are written on the way; the errors of any other file pass unchanged.
    """
    try:
        yield
    except WriteError:
        raise
    except OSError as error:
        ours = {os.fspath(x) for x in (path, *path.parents, *others)}
        if error.filename is not None and str(error.filename) not in ours:
            raise
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise WriteError(
            f"{path} cannot be written ({error.strerror or error}); "
            f"{'make room, or ' if full else ''}choose another place"
        ) from None


def read_json(path: Path) -> Any:
    """The content of a JSON file of a model's directory."""
    try:
        return json.loads(path.read_text("utf-8-sig"), object_pairs_hook=_once)
    except (FileNotFoundError, IsADirectoryError):
        raise ValueError(
            f"{path.parent} has no {path.name}; is it a model's directory?"
        ) from None
    except ValueError as error:
        raise ValueError(f"{path} is not JSON ({error}); fetch it again") from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON. Raises ValueError for a key that it has twice."""
    content = dict(pairs)
    if len(content) < len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {repeated!r} is there twice")
    return content


def read_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file."""
    value = read_json(path)
    if not isinstance(value, dict):
        raise ValueError(f"{path} holds no JSON object; fetch it again")
    return value


@contextlib.contextmanager
def readable_errors(path: str | os.PathLike, remedy: str) -> Iterator[None]:
    """Turns the errors of reading malformed content into a ValueError with a remedy."""
    try:
        yield
    except _CONTENT_ERRORS as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0][:150]
        raise ValueError(f"{path} is malformed ({reason}); {remedy}") from error


def check_directory_name(path: str | os.PathLike) -> None:
    """Raises ValueError for a name that is a file's, such as "model.onnx"."""
    if Path(path).suffix.lower() in _MODEL_FILES:
        raise ValueError(
            f"{path} would be a directory, but ends like the name of a file; name a "
            f"directory, such as {Path(path).with_suffix('')}"
        )


def check_unused(directory: str | os.PathLike) -> None:
    """Raises ValueError for a file, and for a directory that is not empty."""
    directory = local_path(directory)
    if directory.is_file() or (directory.is_dir() and any(directory.iterdir())):
        raise ValueError(
            f"{directory} exists already; delete it or choose another name"
        )


def check_unchanged(
    old: Mapping, new: Mapping, problem: str, remedy: str, harmless: Collection = ()
) -> None:
    """Raises ValueError that lists the differences, between `problem` and `remedy`.

    `harmless` names fields, by the last part of their path, that may change.
    """
    changed = differences(old, new, harmless)
    if changed:
        raise ValueError(f"{problem}:\n{first_few(changed, '; ')}\n{remedy}")


def first_few(
    items: Sequence[str], separator: str = ", ", most: int = _MAX_LISTED
) -> str:
    """A list for an error, of which `most` are named.

    >>> first_few(["a", "b", "c", "d", "e"])
    'a, b, c (and 2 more)'
    """
    rest = len(items) - most
    more = f" (and {rest} more)" if rest > 0 else ""
    return f"{separator.join(items[:most])}{more}"


def differences(old: Mapping, new: Mapping, harmless: Collection = ()) -> list[str]:
    """The fields that differ between two nested mappings, one line each."""
    old, new = _flat(old), _flat(new)
    return [
        f"{name}: was {old.get(name)!r}, is {new.get(name)!r}"
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name) and name.split(".")[-1] not in harmless
    ]


def _flat(tree: Mapping, path: str = "") -> dict[str, Any]:
    """`{"a": {"b": 1}}` as `{"a.b": 1}`, with values as JSON returns them."""
    fields: dict[str, Any] = {}
    for name, value in json.loads(json.dumps(tree, default=str)).items():
        below = f"{path}.{name}" if path else name
        nested = isinstance(value, dict)
        fields.update(_flat(value, below) if nested else {below: value})
    return fields
