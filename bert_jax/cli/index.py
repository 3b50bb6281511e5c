"""Embeds a corpus once, to search it many times.

Examples:
  bert-jax index corpus.jsonl --model DIR --out corpus.index
  bert-jax search "a question" --corpus corpus.index --model DIR

Each line of the corpus is a text, or an object with a text and perhaps a title and an
id, as in BEIR. The same command resumes after an interruption.
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from bert_jax.cli import model_commands
from bert_jax.files import counted


def add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("corpus", help="a file, or a folder with corpus.jsonl")
    model_commands.add_model_arguments(parser)
    add("--out", type=Path, required=True, help="the directory of the index")


def run(args: Namespace) -> None:
    model = model_commands.open_model(args, ("",))
    model.progress = True
    index = model.index(args.corpus, args.out, args.batch_size)
    print(f"{args.out}: {counted(len(index), 'document')}")
