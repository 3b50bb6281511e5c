"""Prints a model as a table: shapes, parameters, FLOPs per token, memory.

Examples:
  bert-jax describe DIR
  bert-jax describe DIR --length 512 --batch-size 8
"""

from bert_jax.cli import opening


def arguments(add) -> None:
    add("model", metavar="DIR", help=opening.MODEL)
    add("--length", type=int, default=128, help="tokens in a row")
    add("--batch-size", type=int, default=32, help="rows computed together")


def run(args) -> None:
    import bert_jax

    model = bert_jax.load(args.model)
    print(bert_jax.describe(model, args.length, args.batch_size))
