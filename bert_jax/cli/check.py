"""Summarises labelled files, and lists their errors.

Examples:
  bert-jax check train.tsv dev.tsv
  bert-jax check train.conll dev.conll
  bert-jax check train.jsonl --task answer
"""

from argparse import ArgumentParser, Namespace


def add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("files", nargs="+", help="the file to train on, then others")
    tasks = ("classify", "answer", "tag", "choose", "embed", "rerank")
    add("--task", choices=tasks, help="the task; default: detected")
    add("--text", help="column of the text, by name or position from 0; detected")
    add("--pair", help="column of the second text; detected")
    add("--label", help="column of the label; detected")


def run(args: Namespace) -> None:
    from bert_jax.data import check
    from bert_jax.data.tables import Columns

    columns = Columns(args.text, args.pair, args.label)
    for line in check.describe_files(args.files, args.task, columns):
        print(line)
