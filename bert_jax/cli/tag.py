"""Prints a label for every word of every text, such as entities or parts of speech.

Examples:
  bert-jax tag "Ada Lovelace lived in London ." --model DIR
  bert-jax tag messages.txt --model DIR --out tags.jsonl
  bert-jax tag messages.txt --model DIR --format text > tags.conll

Objects have a field `text`, or `tokens`, a list of words. As text, each line is a word
with its label, and an empty line ends each text.
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
    add("--tokens", default="tokens", metavar="FIELD", help="the field of the words")


def run(args: Namespace) -> None:
    from bert_jax.inference import tag

    model_commands.run(
        args,
        heads=("ForTokenClassification",),
        check_head=tag.check_head,
        predict=lambda model, block: _tags(model, block, args),
        as_json=lambda tags: [tag._asdict() for tag in tags],
        as_text=lambda _, tags: "".join(f"{x.word}\t{x.label}\n" for x in tags),
    )


def _tags(model: "Model", block: list[Record], args: Namespace) -> Any:
    if has_field(block, args.tokens):
        words = [record.strings(args.tokens) for record in block]
        return model.tag(words, args.batch_size)
    return model.tag([record.text(args.text) for record in block], args.batch_size)
