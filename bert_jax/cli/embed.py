"""Turns texts into vectors, one for each line or object, in their order.

Examples:
  bert-jax embed sentences.txt --model DIR --out vectors.npy
  cat sentences.txt | bert-jax embed - --model DIR > vectors.jsonl
  bert-jax embed "one text" "another text" --model DIR --format text
  bert-jax embed documents.txt --sparse --model DIR --out documents.npz

A sparse vector is an object of words and weights; in .npz all vectors are a matrix that
scipy.sparse.load_npz opens.
"""

import argparse
from argparse import ArgumentParser, BooleanOptionalAction, Namespace
from typing import TYPE_CHECKING, Any

from bert_jax.cli import model_commands, records
from bert_jax.cli.records import Record

if TYPE_CHECKING:
    from bert_jax.inference.model import Model

# Numbers of a vector that a terminal shows.
SHOWN = 4


def add_arguments(parser: ArgumentParser) -> None:
    model_commands.add_arguments(parser, (*model_commands.FORMATS, "npy", "npz"))
    add = parser.add_argument
    add("--text", default="text", metavar="FIELD", help=model_commands.TEXT_FIELD)
    add("--pooling", help="mean, cls, max, …; default: the model's own, or mean")
    layers = "-1 or -2,-1 for example; several are concatenated"
    add("--layers", type=_layers, default=(-1,), help=layers)
    add("--normalize", action=BooleanOptionalAction, help="scale to length 1")
    add("--sparse", action="store_true", help="weights of words, by a masked LM head")


def run(args: Namespace) -> None:
    if args.sparse:
        _run_sparse(args)
        return
    if args.pooling == "tokens":
        raise ValueError("--pooling tokens works only in Python: model.embed(…)")
    model_commands.run(
        args,
        heads=("",),
        check_head=lambda head: None,
        predict=lambda model, block: _vectors(model, block, args),
        as_json=lambda row: [float(x) for x in _shortest(row)],
        as_text=lambda record, row: _preview(record.text(args.text), row),
        field="vector",
        work="embedding",
    )


def _run_sparse(args: Namespace) -> None:
    from bert_jax.inference import embed_sparse

    others = {
        "--pooling": args.pooling is not None,
        "--layers": args.layers != (-1,),
        "--normalize": args.normalize is not None,
    }
    for flag, is_set in others.items():
        if is_set:
            raise ValueError(f"{flag} is not for --sparse; leave it out")
    as_rows = records.format_of(args, records.SPARSE) == "npz"

    def predict(model: "Model", block: list[Record]) -> Any:
        texts = [record.text(args.text) for record in block]
        matrix = model.embed_sparse(texts, batch_size=args.batch_size)
        rows = [matrix[i] for i in range(len(texts))]
        return rows if as_rows else [embed_sparse.by_word(model, row) for row in rows]

    model_commands.run(
        args,
        heads=("ForMaskedLM", "ForPreTraining"),
        check_head=embed_sparse.check_head,
        predict=predict,
        as_json=lambda words: {k: float(f"{x:.6g}") for k, x in words.items()},
        as_text=lambda _, words: " ".join(f"{k}:{x:.4g}" for k, x in words.items()),
        field=records.SPARSE,
        work="embedding",
    )


def _vectors(model: "Model", block: list[Record], args: Namespace) -> Any:
    texts = [record.text(args.text) for record in block]
    return model.embed(
        texts, args.pooling, args.layers, args.normalize, args.batch_size
    )


def _preview(text: str, row: Any) -> str:
    """A text and the first numbers of its vector, for a person."""
    numbers = "  ".join(f"{x:.4f}" for x in row[:SHOWN])
    more = f"  … {len(row)} numbers; all with --out FILE.npy" * (len(row) > SHOWN)
    return f"{text:.60}\n  {numbers}{more}"


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
