"""Continues to pre-train a model on your own text; WORKDIR/model is the result.

Examples:
  bert-jax pretrain my_text/ --model DIR --workdir runs/mine
  bert-jax fill-mask "a sentence with a [MASK] ." --model runs/mine

The same command resumes a run that was stopped. `train.py` can start from random
parameters, and has a flag for everything.
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from bert_jax.cli.model_commands import MODEL

TRAINS = True


def add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("paths", nargs="+", help="files, directories or globs of text or JSONL")
    add("--model", required=True, help=f"the model to start from: {MODEL}")
    add(
        "--workdir",
        required=True,
        type=Path,
        help="work directory; makes WORKDIR/model",
    )
    add("--epochs", type=float, default=3, help="passes over the text")
    add("--learning-rate", type=float, default=2e-5)
    add("--batch-size", type=int, default=32, help="rows in an update")
    add("--max-length", type=int, default=128, help="tokens in a row")
    pairs = ("next", "order", "none")
    add("--pairs", choices=pairs, help="pairs of sentences; default: the model's")
    add(
        "--held-out", type=float, default=0.05, help="documents to evaluate on, a share"
    )
    add("--format", default="auto", help="lines, paragraphs, jsonl, wikiextractor, …")
    add("--processes", type=int, help="to prepare the text; default: one per core")
    add("--seed", type=int, default=0)


def run(args: Namespace) -> None:
    import bert_jax
    from bert_jax.inference import jitted

    jitted.use_compilation_cache()
    bert_jax.pretrain(
        args.model,
        args.paths,
        epochs=args.epochs,
        learning_rate=args.learning_rate,
        batch_size=args.batch_size,
        max_length=args.max_length,
        pairs=args.pairs,
        held_out=args.held_out,
        format=args.format,
        processes=args.processes,
        seed=args.seed,
        workdir=args.workdir,
    )
