"""Prints the documents of a corpus that are nearest to each query.

Examples:
  bert-jax search "how do plants eat" --corpus facts.txt --model DIR
  bert-jax search queries.jsonl --corpus corpus.index --model DIR --out hits.jsonl

A corpus that is searched more than once is embedded only once with `bert-jax index`.
"""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from bert_jax.cli import model_commands
from bert_jax.cli.records import Record

if TYPE_CHECKING:
    from bert_jax.inference.index import Index
    from bert_jax.inference.model import Model

CORPUS = "an index, a file with a document in each line, or a folder with corpus.jsonl"

# Characters of a document that a terminal shows.
SHOWN = 100


def add_arguments(parser: ArgumentParser) -> None:
    model_commands.add_arguments(parser)
    add = parser.add_argument
    add("--corpus", required=True, help=CORPUS)
    add("-k", "--k", type=int, default=10, help="documents for each query; default: 10")
    add("--text", default="text", metavar="FIELD", help=model_commands.TEXT_FIELD)


def run(args: Namespace) -> None:
    if args.k < 1:
        raise ValueError(f"-k {args.k}; it must be at least 1")
    indexes: list[Index] = []

    def search(model: "Model", block: list[Record]) -> Any:
        from bert_jax.inference.search import opened

        if not indexes:
            indexes.append(opened(model, args.corpus, args.batch_size))
        queries = [record.text(args.text) for record in block]
        return model.search(queries, indexes[0], args.k, args.batch_size)

    model_commands.run(
        args,
        heads=("",),
        check_head=lambda head: None,
        predict=search,
        as_json=lambda hits: [hit._asdict() for hit in hits],
        as_text=lambda record, hits: model_commands.titled(
            record.text(args.text),
            [f"{x.score:.4f}  {x.id}  {x.text:.{SHOWN}}" for x in hits],
        ),
        field="hits",
        work="searching",
    )
