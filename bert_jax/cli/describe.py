"""Prints a model as a table: shapes, parameters, FLOPs per token, memory.

Examples:
  bert-jax describe DIR
  bert-jax describe DIR --length 512 --batch-size 8
"""

from argparse import ArgumentParser, Namespace

from bert_jax.cli.model_commands import MODEL


def add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("model", metavar="DIR", help=MODEL)
    add("--length", type=int, default=128, help="tokens in a row")
    add("--batch-size", type=int, default=32, help="rows computed together")


def run(args: Namespace) -> None:
    import bert_jax

    model = bert_jax.load(args.model)
    print(bert_jax.describe(model, args.length, args.batch_size))
