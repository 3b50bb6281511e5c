"""Gives each text, or pair of texts, a label with its probability, or a number.

Examples:
  bert-jax classify "a joy from start to end" --model DIR
  bert-jax classify reviews.txt --model DIR --out labels.jsonl
  bert-jax classify test.tsv --model DIR | jq -r '.prediction[0].name'

A pair is an object with the fields `text` and `pair`, or a row of such a table.
"""

from bert_jax.cli import using
from bert_jax.cli.reading import Record


def arguments(add) -> None:
    using.arguments(add)
    add("--text", default="text", metavar="FIELD", help="of JSONL, that has the text")
    add("--pair", default="pair", metavar="FIELD", help="likewise, the second text")


def run(args) -> None:
    from bert_jax.inference import classify

    using.run(
        args,
        heads=("ForSequenceClassification",),
        refuse=classify.check_head,
        call=lambda model, block: model.classify(_texts(block, args), args.batch_size),
        as_json=_plain,
        as_text=lambda record, found: f"{_said(found)}\t{record.text(args.text)}",
    )


def _texts(block: list[Record], args):
    texts = [record.text(args.text) for record in block]
    if not using.have(block, args.pair):
        return texts
    pairs = [record.text(args.pair) for record in block]
    return list(zip(texts, pairs, strict=True))


def _plain(found):
    number = isinstance(found, float)
    return found if number else [label._asdict() for label in found]


def _said(found):
    if isinstance(found, float):
        return f"{found:.4g}"
    return f"{found[0].name}\t{found[0].probability:.1%}"
