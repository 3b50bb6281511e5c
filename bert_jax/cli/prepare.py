"""Turns raw text into packed token rows, once; train.py reads them with
--config.task.prepared=DIR. It streams, uses all cores, and goes on where it was
stopped.

Examples:
  bert-jax prepare wiki/ --vocab-size 30522 --length 512 --out rows
  bert-jax prepare a.txt b.jsonl --tokenizer vocab.txt --out rows
"""

from pathlib import Path


def arguments(add) -> None:
    add("paths", nargs="*", help="files, directories or globs; none: Python's own docs")
    add("--out", required=True, type=Path, help="directory to make")
    add("--format", default="auto", help="lines, paragraphs, jsonl, wikiextractor, …")
    add("--tokenizer", help="vocab.txt or a model's directory; none trains one")
    kinds = "wordpiece, byte_level_bpe (with --cased) or sentencepiece"
    add("--vocabulary", default="wordpiece", help=f"kind to train: {kinds}")
    add("--vocab-size", type=int, default=30522, help="of a vocabulary to train")
    add("--cased", action="store_true", help="keep capitals and accents")
    add("--length", type=int, default=128, help="tokens in a row")
    add("--pairs", choices=("next", "order", "none"), default="next")
    add("--no-pack", action="store_true", help="one sequence a row")
    add("--dupe-factor", type=int, default=1, help="pair the text so many times")
    add("--held-out", type=float, default=0.05, help="share of documents for eval")
    add("--seed", type=int, default=0)
    add("--processes", type=int, help="default: one a core")


def run(args) -> None:
    from bert_jax.data.records import RowConfig
    from bert_jax.tasks.pretraining import PretrainingConfig

    task = PretrainingConfig(
        paths=tuple(args.paths),
        format=args.format,
        tokenizer=args.tokenizer,
        vocabulary=args.vocabulary,
        lowercase=not args.cased,
        recipe=RowConfig(
            sequence_length=args.length,
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
