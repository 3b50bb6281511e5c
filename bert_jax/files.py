"""JSON files, read with errors that say what to do."""

import contextlib
import json
import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

# What Python raises where JSON has a number for a name, or half of what it should.
SIGNS = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    RecursionError,
    TypeError,
    UnicodeError,
    json.JSONDecodeError,
)


@contextlib.contextmanager
def refused(path: str | os.PathLike, remedy: str) -> Iterator[None]:
    """Raises ValueError where what `path` holds makes Python stumble."""
    try:
        yield
    except SIGNS as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0][:150]
        raise ValueError(f"{path} is malformed ({reason}); {remedy}") from error


# Differences that an error names in full.
NAMED = 3


def write_json(path: Path, content: Any) -> None:
    """Writes atomically: a reader sees the old file or the new one."""
    half = path.with_name(f"{path.name}.{os.getpid()}")
    half.write_text(
        json.dumps(content, indent=2, ensure_ascii=False, default=str) + "\n"
    )
    half.replace(path)


def refuse_taken(directory: str | os.PathLike) -> None:
    """Raises ValueError unless a directory can be made anew."""
    directory = Path(directory)
    if directory.is_file() or (directory.is_dir() and any(directory.iterdir())):
        raise ValueError(f"{directory} is there already; delete it or name another one")


def refuse_changes(
    old: Mapping, new: Mapping, problem: str, remedy: str, harmless: Collection = ()
) -> None:
    """Raises ValueError with what changed between two stamps, between two sentences.

    `harmless` names fields, by the last part of their path, that may change.
    """
    changed = differences(old, new, harmless)
    if changed:
        more = f" (and {len(changed) - NAMED} more)" if len(changed) > NAMED else ""
        raise ValueError(f"{problem}:\n{'; '.join(changed[:NAMED])}{more}\n{remedy}")


def differences(old: Mapping, new: Mapping, harmless: Collection = ()) -> list[str]:
    """Fields that are not the same in two stamps, one line each."""
    old, new = _flat(old), _flat(new)
    return [
        f"{name}: was {old.get(name)!r}, is {new.get(name)!r}"
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name) and name.split(".")[-1] not in harmless
    ]


def _flat(tree, path=""):
    """`{"a": {"b": 1}}` as `{"a.b": 1}`, and what JSON makes of the values."""
    fields = {}
    for name, value in json.loads(json.dumps(tree, default=str)).items():
        below = f"{path}.{name}" if path else name
        nested = isinstance(value, dict)
        fields.update(_flat(value, below) if nested else {below: value})
    return fields


def read_json(path: Path) -> Any:
    """What a JSON file holds."""
    try:
        return json.loads(path.read_text("utf-8-sig"))
    except (FileNotFoundError, IsADirectoryError):
        raise ValueError(
            f"{path.parent} has no {path.name}; is it a model's directory?"
        ) from None
    except ValueError as error:
        raise ValueError(f"{path} is not JSON ({error}); fetch it again") from error


def read_object(path: Path) -> dict[str, Any]:
    """A JSON file that holds an object."""
    value = read_json(path)
    if not isinstance(value, dict):
        raise ValueError(f"{path} holds no JSON object; fetch it again")
    return value
