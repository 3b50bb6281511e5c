"""JSON files: written atomically, read and compared with readable errors."""

import contextlib
import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

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


def write_json(path: Path, content: Any) -> None:
    """Writes atomically: a reader sees the old file or the new one."""
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    text = json.dumps(content, indent=2, ensure_ascii=False, default=str)
    unfinished.write_text(f"{text}\n")
    unfinished.replace(path)


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
    directory = Path(directory)
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
