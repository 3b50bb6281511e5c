"""Prints a label for every word of every text, such as entities or parts of speech.

Examples:
  bert-jax tag "Ada Lovelace lived in London ." --model DIR
  bert-jax tag messages.txt --model DIR --out tags.jsonl
  bert-jax tag messages.txt --model DIR --format text > tags.conll
  bert-jax tag messages.txt --model DIR --entities

Objects have a field `text`, or `tokens`, a list of words. As text, each line is a word
with its label, and an empty line ends each text. With --entities the words that labels
such as B-PER and I-PER mark are joined.
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

    entities = "the entities that labels such as B-PER and I-PER mark, not each word"
    add("--entities", action="store_true", help=entities)


def run(args: Namespace) -> None:
    from bert_jax.inference import tag

    as_text = _entities_as_text if args.entities else _tags_as_text
    model_commands.run(
        args,
        heads=("ForTokenClassification",),
        check_head=tag.check_head,
        predict=lambda model, block: _tags(model, block, args),
        as_json=lambda tags: [tag._asdict() for tag in tags],
        as_text=as_text,
        work="tagging",
    )


def _tags(model: "Model", block: list[Record], args: Namespace) -> Any:
    verb = model.entities if args.entities else model.tag
    if has_field(block, args.tokens):
        words = [record.strings(args.tokens) for record in block]
        return verb(words, args.batch_size)
    return verb([record.text(args.text) for record in block], args.batch_size)


def _tags_as_text(_: Record, tags: Any) -> str:
    return "".join(f"{x.word}\t{x.label}\n" for x in tags)


def _entities_as_text(_: Record, entities: Any) -> str:
    """A line for each entity; a text without any is an empty line."""
    return "".join(f"{x.text}\t{x.type}\t{x.probability:.1%}\n" for x in entities)
