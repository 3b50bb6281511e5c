"""Stamps: JSON that says from what a directory was made, and refuses another maker."""

import json
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

# Differences that an error names in full.
NAMED = 3


def write_json(path: Path, content: Any) -> None:
    """Writes atomically: a reader sees the old file or the new one."""
    half = path.with_name(f"{path.name}.{os.getpid()}")
    half.write_text(json.dumps(content, indent=1, default=str) + "\n")
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
