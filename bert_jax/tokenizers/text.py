"""Texts from users and files: checked, and cleared of lone surrogates."""

import json
import os
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

from bert_jax import files

_SURROGATE = re.compile("[\ud800-\udfff]")


def listed(texts: str | Sequence[str], name: str) -> list[str]:
    """One string or many as a list; ValueError with the place of anything else."""
    texts = [texts] if isinstance(texts, str) else as_list(texts, name)
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise ValueError(
                f"{name}[{row}] is {text!r:.60}, not a string; "
                "leave it out or replace it"
            )
    return texts


def as_list(values: Any, name: str) -> list[Any]:
    """The values of a list, or of another sequence or iterator, in their order.

    Raises ValueError for what would yield something else: the keys of a dictionary, the
    numbers of bytes, a set in any order, the column names of a table.
    """
    ordered = isinstance(values, Iterable) and not isinstance(
        values, str | bytes | bytearray | Mapping | Set
    )
    if not ordered or getattr(values, "ndim", 1) != 1:
        shown = " ".join(repr(values).split())
        raise ValueError(f"{name}={shown:.60}; give a string, or a list of them")
    return list(values)


def check_surrogates(texts: Sequence[str]) -> None:
    """Raises ValueError at the first text that UTF-8 cannot write."""
    for row, text in enumerate(texts):
        if surrogate := _SURROGATE.search(text):
            raise ValueError(
                f"text {row} has a lone surrogate at {surrogate.start()}; replace it"
            )


def without_surrogates(texts: list[str]) -> list[str]:
    """Texts with U+FFFD for every lone surrogate, and one warning for all of them."""
    cleaned = [_SURROGATE.subn("\ufffd", text) for text in texts]
    counts = [count for _, count in cleaned]
    if any(counts):
        first = next(row for row, count in enumerate(counts) if count)
        _warn(sum(counts), first)
    return [text for text, _ in cleaned]


def streamed(texts: Iterable[str]) -> Iterator[str]:
    """Training texts with U+FFFD for lone surrogates, and one warning at the end.

    Raises ValueError if no text holds a word.
    """
    total, first, empty = 0, 0, True
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise ValueError(f"text {row} is {text!r:.60}, not a string; leave it out")
        if not text.isascii():
            text, count = _SURROGATE.subn("\ufffd", text)
            first = row if count and not total else first
            total += count
        empty = empty and not text.strip()
        yield text
    if empty:
        raise ValueError("the texts to learn from hold no word; give more text")
    if total:
        _warn(total, first)


def read_text(path: str | os.PathLike) -> str:
    """A file of UTF-8 text, its line ends turned to newlines."""
    path = files.local_path(path)
    if not path.is_file():
        raise ValueError(f"there is no file {path}; check the path")
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is not UTF-8: byte {error.object[error.start]:#04x} at "
            f"{error.start}; convert it to UTF-8"
        ) from error


def read_json(path: str | os.PathLike) -> dict:
    """A file of one JSON object."""
    try:
        value = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is not JSON ({error}); fetch it again") from error
    if not isinstance(value, dict):
        raise ValueError(f"{path} holds no JSON object; fetch the file again")
    return value


def _warn(count: int, row: int) -> None:
    warnings.warn(
        f"replaced {count} lone surrogates by U+FFFD, the first in row {row}",
        stacklevel=5,  # the line that called the tokenizer
    )
