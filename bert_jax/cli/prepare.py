"""Turns raw text into packed token rows, once; train.py reads them with
--config.task.prepared=DIR. It streams the text, uses all cores, and resumes after a
stop.

Examples:
  bert-jax prepare wiki/ --vocab-size 30522 --max-length 512 --out rows
  bert-jax prepare a.txt b.jsonl --tokenizer vocab.txt --out rows
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path


def add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("paths", nargs="*", help="files, directories or globs; none: Python's own docs")
    add("--out", required=True, type=Path, help="the new directory")
    add("--format", default="auto", help="lines, paragraphs, jsonl, wikiextractor, …")
    add("--tokenizer", help="vocab.txt or a model's directory; default: train one")
    kinds = "wordpiece, bpe (with --cased) or unigram"
    add("--vocabulary", default="wordpiece", help=f"kind to train: {kinds}")
    add("--vocab-size", type=int, default=30522, help="pieces of a vocabulary to train")
    add("--cased", action="store_true", help="keep capitals and accents")
    add("--max-length", type=int, default=128, help="tokens in a row")
    add("--pairs", choices=("next", "order", "none"), default="next")
    add("--no-pack", action="store_true", help="one sequence per row")
    add("--dupe-factor", type=int, default=1, help="times to pair the text")
    add(
        "--held-out", type=float, default=0.05, help="documents to evaluate on, a share"
    )
    add("--seed", type=int, default=0)
    add("--processes", type=int, help="default: one per core")


def run(args: Namespace) -> None:
    from bert_jax.data import optional
    from bert_jax.data.records import RowConfig
    from bert_jax.tasks.pretraining import PretrainingConfig

    # Before the vocabulary, which can take minutes.
    optional.check_installed("preparing rows")
    task = PretrainingConfig(
        paths=tuple(args.paths),
        format=args.format,
        tokenizer=args.tokenizer,
        vocabulary=args.vocabulary,
        lowercase=not args.cased,
        recipe=RowConfig(
            sequence_length=args.max_length,
            pairs=args.pairs,
            pack=not args.no_pack,
            dupe_factor=args.dupe_factor,
            held_out=args.held_out,
            seed=args.seed,
        ),
    )
    cache = args.out.with_name(f"{args.out.name}.tokenizer")
    print(task.write_rows(args.out, cache, args.vocab_size, processes=args.processes))
    print(f"next: python train.py --config.task.prepared={args.out}")
