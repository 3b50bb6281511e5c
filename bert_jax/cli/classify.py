"""Prints a label with its probability, or a number, for each text or pair of texts.

Examples:
  bert-jax classify "a joy from start to end" --model DIR
  bert-jax classify reviews.txt --model DIR --out labels.jsonl
  bert-jax classify test.tsv --model DIR | jq -r '.prediction[0].name'

A pair is an object with the fields `text` and `pair`, or a row of such a table.
"""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from bert_jax.cli import model_commands
from bert_jax.cli.records import Record, has_field

if TYPE_CHECKING:
    from bert_jax.inference.model import Model


def add_arguments(parser: ArgumentParser) -> None:
    model_commands.add_arguments(parser)
    add = parser.add_argument
    add("--text", default="text", metavar="FIELD", help=model_commands.TEXT_FIELD)
    add("--pair", default="pair", metavar="FIELD", help="the field of the second text")


def run(args: Namespace) -> None:
    from bert_jax.inference import classify

    model_commands.run(
        args,
        heads=("ForSequenceClassification",),
        check_head=classify.check_head,
        predict=lambda model, block: _classify(model, block, args),
        as_json=_as_json,
        as_text=lambda record, x: f"{_as_text(x)}\t{record.text(args.text)}",
        work="classifying",
    )


def _classify(model: "Model", block: list[Record], args: Namespace) -> Any:
    texts = [record.text(args.text) for record in block]
    if not has_field(block, args.pair):
        return model.classify(texts, args.batch_size)
    pairs = [record.text(args.pair) for record in block]
    return model.classify(list(zip(texts, pairs, strict=True)), args.batch_size)


def _as_json(prediction: Any) -> Any:
    if isinstance(prediction, float):
        return prediction
    return [label._asdict() for label in prediction]


def _as_text(prediction: Any) -> str:
    if isinstance(prediction, float):
        return f"{prediction:.4g}"
    return f"{prediction[0].name}\t{prediction[0].probability:.1%}"
