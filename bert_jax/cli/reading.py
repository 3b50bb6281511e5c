"""What the verbs read: texts and JSON objects, one after the other."""

import dataclasses
import itertools
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

INPUT = "a file, - for standard input, or a text in quotes"

TABLES = (".tsv", ".csv")
JSON_LINES = (".jsonl", ".ndjson")


@dataclasses.dataclass(frozen=True)
class Record:
    """One input: where it stands, for errors, and its fields; a line has `text`."""

    place: str
    fields: dict[str, Any]

    def text(self, field: str) -> str:
        """The string in a field; ValueError where there is none."""
        value = self.fields.get(field)
        if isinstance(value, str):
            return value
        if field in self.fields:
            raise ValueError(
                f"{self.place}: the field {field!r} is {value!r:.60}, not a string"
            )
        there = ", ".join(self.fields) or "no field"
        raise ValueError(
            f"{self.place}: there is no field {field!r} but {there}; rename one, or "
            "name it by its flag"
        )


def records(inputs: Sequence[str], labelled: bool = False) -> Iterator[Record]:
    """Reads inputs one after the other, a line at a time.

    What names a file is read, `-` is standard input, and what holds a blank is a text
    itself; other arguments are refused as files that are not there. A line is a text.
    Where the name ends in .jsonl, or the first line of standard input opens an object,
    each line is a JSON object, and empty lines are passed over. The rows of a .tsv or a
    .csv are found as in training, with a `label` if they are `labelled`, and held in
    memory.
    """
    for number, name in enumerate(inputs, 1):
        if name == "-" or os.path.isfile(name):
            yield from _of_file(name, labelled)
        elif any(map(str.isspace, name)):
            yield Record(f"text {number}", {"text": name})
        else:
            raise ValueError(
                f"there is no file {name!r}; check the path (a text of one word comes "
                "through a pipe: echo WORD | bert-jax …)"
            )


def count(inputs: Sequence[str]) -> int | None:
    """How many records there are at most, or None where only reading them tells."""
    total = 0
    for name in inputs:
        if name == "-" or _plain_ending(name) != Path(name).suffix:
            return None
        if not os.path.isfile(name):
            total += 1
            continue
        with open(name, "rb") as file:
            chunks = iter(lambda file=file: file.read(1 << 20), b"")
            total += sum(chunk.count(b"\n") for chunk in chunks) + 1
    return total


def _of_file(name: str, labelled: bool) -> Iterator[Record]:
    # Which imports the splitter of sentences; not for --help.
    from bert_jax.data import corpus

    if _plain_ending(name) in TABLES:
        yield from _of_table(name, labelled)
        return
    shown = "standard input" if name == "-" else name
    lines = corpus.lines(name)
    first = next(lines, None)
    if first is None:
        return
    is_json = _plain_ending(name) in JSON_LINES
    is_json = is_json or (name == "-" and first[1].startswith("{"))
    for number, line in itertools.chain([first], lines):
        place = f"{shown}:{number}"
        if not is_json:
            yield Record(place, {"text": line})
        elif line:
            yield Record(place, _object(place, line))


def _plain_ending(name: str) -> str:
    """The ending, below that of a compressed file."""
    path = Path(name)
    packed = path.suffix in (".gz", ".bz2", ".xz")
    return (path.with_suffix("") if packed else path).suffix


def _of_table(name: str, labelled: bool) -> Iterator[Record]:
    from bert_jax.data import tables

    table = tables.read(name, labelled=labelled)
    columns = {"text": table.texts, "pair": table.pairs, "label": table.labels}
    columns = {field: values for field, values in columns.items() if values}
    for line, *row in zip(table.lines, *columns.values(), strict=True):
        yield Record(f"{name}:{line}", dict(zip(columns, row, strict=True)))


def _object(place: str, line: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f'{place}: not JSON ({error}); each line is an object, as {{"text": "..."}}'
        ) from None
    if not isinstance(value, dict):
        raise ValueError(f"{place}: {line:.60} is no JSON object with fields")
    return value


def refuse_terminal(inputs: Sequence[str]) -> None:
    """Says that it waits, where a person would type the input."""
    if "-" in inputs and sys.stdin.isatty():
        print("reads lines from the terminal; Ctrl-D ends", file=sys.stderr)
