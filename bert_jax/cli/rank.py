"""Ranks documents by their scores for a query, the best first.

Examples:
  bert-jax rank "who wrote it" --documents texts.txt --k 5 --model DIR
  bert-jax rank questions.jsonl --model DIR --out ranked.jsonl

Objects have the fields `query` and `documents`, a list of texts. With --documents all
queries rank the texts of this file, and each line of text is a query too.
"""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from bert_jax.cli import model_commands, records
from bert_jax.cli.records import Record

if TYPE_CHECKING:
    from bert_jax.inference.model import Model


def add_arguments(parser: ArgumentParser) -> None:
    model_commands.add_arguments(parser)
    add = parser.add_argument
    add("--documents", metavar="FILE", help="the texts to rank, one a line")
    add("-k", "--k", type=int, help="only the best K documents; default: all")


def run(args: Namespace) -> None:
    from bert_jax.inference import rank

    documents = args.documents and [
        record.text("text") for record in records.read([args.documents])
    ]
    model_commands.run(
        args,
        heads=("ForSequenceClassification",),
        check_head=rank.check_head,
        predict=lambda model, block: _rank(model, block, documents, args),
        as_json=lambda ranked: [x._asdict() for x in ranked],
        as_text=lambda record, ranked: model_commands.titled(
            _query(record), [f"{x.score:8.4f}  {x.text}" for x in ranked]
        ),
        work="ranking",
    )


def _query(record: Record) -> str:
    return record.text("text" if "query" not in record.fields else "query")


def _rank(
    model: "Model", block: list[Record], documents: list[str] | None, args: Namespace
) -> Any:
    lists = [documents or record.strings("documents") for record in block]
    queries = [_query(record) for record in block]
    return model.rank(queries, lists, args.k, args.batch_size)
