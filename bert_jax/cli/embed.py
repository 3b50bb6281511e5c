"""Turns texts into vectors, one for each line or object, in their order.

Examples:
  bert-jax embed sentences.txt --model DIR --out vectors.npy
  cat sentences.txt | bert-jax embed - --model DIR > vectors.jsonl
  bert-jax embed "one text" "another text" --model DIR --format text
"""

import argparse
from argparse import ArgumentParser, BooleanOptionalAction, Namespace
from typing import TYPE_CHECKING, Any

from bert_jax.cli import model_commands
from bert_jax.cli.records import Record

if TYPE_CHECKING:
    from bert_jax.inference.model import Model


def add_arguments(parser: ArgumentParser) -> None:
    model_commands.add_arguments(parser, (*model_commands.FORMATS, "npy"))
    add = parser.add_argument
    add("--text", default="text", metavar="FIELD", help=model_commands.TEXT_FIELD)
    add("--pooling", help="mean, cls, max, …; default: the model's own, or mean")
    layers = "-1 or -2,-1 for example; several are concatenated"
    add("--layers", type=_layers, default=(-1,), help=layers)
    add("--normalize", action=BooleanOptionalAction, help="scale to length 1")


def run(args: Namespace) -> None:
    if args.pooling == "tokens":
        raise ValueError("--pooling tokens works only in Python: model.embed(…)")
    model_commands.run(
        args,
        heads=("",),
        check_head=lambda head: None,
        predict=lambda model, block: _vectors(model, block, args),
        as_json=lambda row: [float(x) for x in _shortest(row)],
        as_text=lambda _, row: " ".join(_shortest(row)),
        field="vector",
        work="embedding",
    )


def _vectors(model: "Model", block: list[Record], args: Namespace) -> Any:
    texts = [record.text(args.text) for record in block]
    return model.embed(
        texts, args.pooling, args.layers, args.normalize, args.batch_size
    )


def _shortest(row: Any) -> list[str]:
    """Each number with as few digits as it needs."""
    return row.astype(str)


def _layers(text: str) -> tuple[int, ...]:
    try:
        return tuple(map(int, text.split(",")))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a list of numbers, such as -1 or -2,-1"
        ) from None
