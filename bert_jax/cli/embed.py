"""Turns texts into vectors, one for each line or object, in their order.

Examples:
  bert-jax embed sentences.txt --model DIR --out vectors.npy
  cat sentences.txt | bert-jax embed - --model DIR > vectors.jsonl
  bert-jax embed "one text" "another text" --model DIR --format text
"""

import argparse

from bert_jax.cli import using
from bert_jax.cli.reading import Record


def arguments(add) -> None:
    using.arguments(add, (*using.FORMS, "npy"))
    add("--text", default="text", metavar="FIELD", help="of JSONL, that has the text")
    add("--pooling", help="mean, cls, max, …; default: as the model says, or mean")
    add("--layers", type=_layers, default=(-1,), help="as -1 or -2,-1; side by side")
    add("--normalize", action=argparse.BooleanOptionalAction, help="to length 1")


def run(args) -> None:
    if args.pooling == "tokens":
        raise ValueError("--pooling tokens is of Python alone: model.embed(…)")
    using.run(
        args,
        heads=("",),
        refuse=lambda head: None,
        call=lambda model, block: _vectors(model, block, args),
        as_json=lambda row: [float(x) for x in _shortest(row)],
        as_text=lambda _, row: " ".join(_shortest(row)),
        field="vector",
    )


def _vectors(model, block: list[Record], args):
    texts = [record.text(args.text) for record in block]
    return model.embed(
        texts, args.pooling, args.layers, args.normalize, args.batch_size
    )


def _shortest(row):
    """Each number with the digits that it needs."""
    return row.astype(str)


def _layers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))
