"""Turns raw text into packed token rows, once; train.py reads them with
--config.task.prepared=DIR. It streams the text, uses all cores, and resumes after a
stop.

Examples:
  bert-jax prepare wiki/ --vocab-size 30522 --max-length 512 --out rows
  bert-jax prepare a.txt b.jsonl --tokenizer vocab.txt --out rows
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from bert_jax.cli import run_flags
from bert_jax.cli.vocab import KINDS

ROW_NAMES = {"sequence_length": "max_length"}


def add_arguments(parser: ArgumentParser) -> None:
    from bert_jax.data.records import RowConfig
    from bert_jax.training import fields

    add = parser.add_argument
    add("paths", nargs="*", help="files, directories or globs; none: Python's own docs")
    add("--out", required=True, type=Path, help="the new directory")
    add("--format", default="auto", help="lines, paragraphs, jsonl, wikiextractor, …")
    add("--tokenizer", help="vocab.txt or a model's directory; default: train one")
    kinds = "kind to train, as vocab does (default: wordpiece)"
    add("--vocabulary", choices=KINDS, default="wordpiece", help=kinds)
    pieces = "pieces of a vocabulary to train (default: 30522)"
    add("--vocab-size", type=int, default=30522, metavar="N", help=pieces)
    add("--cased", action="store_true", help="keep capitals and accents, as bpe does")
    run_flags.add_plain(parser, fields.flat_names(RowConfig(), ROW_NAMES))
    add("--processes", type=int, metavar="N", help="default: one per core")


def run(args: Namespace) -> None:
    from bert_jax import files
    from bert_jax.api import flag
    from bert_jax.data import optional
    from bert_jax.data.records import RowConfig
    from bert_jax.tasks.pretraining import PretrainingConfig
    from bert_jax.training import fields

    # Before the vocabulary, which can take minutes.
    optional.check_installed("preparing rows")
    known = fields.flat_names(RowConfig(), ROW_NAMES)
    typed = {x.path: getattr(args, name) for name, x in known.items() if name in args}
    task = PretrainingConfig(
        paths=tuple(args.paths),
        format=args.format,
        tokenizer=args.tokenizer,
        vocabulary=args.vocabulary,
        lowercase=not (args.cased or args.vocabulary == "bpe"),
        recipe=fields.replaced(RowConfig(), typed),
    )
    out = files.local_path(args.out)
    cache = out.with_name(f"{out.name}.tokenizer")
    names = {f"recipe.{x.dotted}": flag(name) for name, x in known.items()}
    with fields.errors_renamed(names, " "):
        rows = task.write_rows(out, cache, args.vocab_size, processes=args.processes)
    print(rows)
    print(f"next: python train.py --config.task.prepared={args.out}")
