"""What the verbs that use a model have in common: a stream in, a stream out."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from bert_jax.cli import opening, reading
from bert_jax.cli.reading import Record

FORMS = ("text", "jsonl")


def arguments(add, forms: Sequence[str] = FORMS) -> None:
    """Flags of every such verb."""
    add("inputs", nargs="*", metavar="INPUT", help=reading.INPUT)
    opening.arguments(add)
    add("--out", type=Path, help="a file, written when all is done; default: stdout")
    add("--format", choices=forms, help="default: by --out; text on a terminal")


def run(
    args: Any,
    *,
    heads: Sequence[str],
    refuse: Callable[[Any], None],
    call: Callable[[Any, list[Record]], Iterable[Any]],
    as_json: Callable[[Any], Any],
    as_text: Callable[[Record, Any], str],
    field: str = "prediction",
) -> None:
    """Reads, computes and writes in blocks, so that memory does not grow with the text.

    Args:
      args: with the flags of `arguments`.
      heads: see `opening.opened`.
      refuse: raises ValueError for a head that cannot do the verb.
      call: a model and records -> a result for each.
      as_json, as_text, field: see `writing.writer`.
    """
    from bert_jax.cli import writing
    from bert_jax.inference import batching

    args.field, inputs = field, args.inputs or ["-"]
    writing.form_of(args)  # what is wrong with it is said first
    model = opening.opened(args, heads)
    refuse(model.head)
    reading.refuse_terminal(inputs)
    size = batching.WINDOW * args.batch_size
    bar = batching.progress_bar(reading.count(inputs), "texts")
    with writing.writer(args, as_json, as_text) as write, bar:
        for block in blocks(reading.records(inputs), size):
            for record, found in zip(block, call(model, block), strict=True):
                write(record, found)
            bar.update(len(block))


def blocks(records: Iterator[Record], size: int) -> Iterator[list[Record]]:
    """Lists of up to `size` records."""
    while block := list(itertools.islice(records, size)):
        yield block


def have(block: list[Record], field: str) -> bool:
    """Whether the records have a field; ValueError where some have, and some not."""
    first = field in block[0].fields
    for record in block:
        if (field in record.fields) != first:
            here, there = ("no", "has one") if first else ("a", "has none")
            raise ValueError(
                f"{record.place}: there is {here} field {field!r}, but "
                f"{block[0].place} {there}; give it to all or to none"
            )
    return first


def strings(record: Record, field: str) -> list[str]:
    """The list of strings in a field; ValueError for anything else."""
    value = record.fields.get(field)
    if isinstance(value, list) and value and all(isinstance(x, str) for x in value):
        return value
    raise ValueError(
        f"{record.place}: the field {field!r} is {value!r:.60}, not a list of strings"
    )


def titled(title: str, lines: list[str]) -> str:
    """Lines for a person, below what they are about."""
    return "\n".join([title, *(f"  {line}" for line in lines)])
