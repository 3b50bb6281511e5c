"""Continues to pre-train a model on your own text; WORKDIR/model is the result.

Examples:
  bert-jax pretrain my_text/ --model DIR --workdir runs/mine
  bert-jax fill-mask "a sentence with a [MASK] ." --model runs/mine

The same command resumes a run that was stopped. `train.py` can start from random
parameters.
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from bert_jax.cli import run_flags
from bert_jax.cli.model_commands import MODEL

TRAINS = True


def add_arguments(parser: ArgumentParser) -> None:
    parser.usage = "bert-jax pretrain PATH … --model DIR --workdir DIR …"
    from bert_jax import api

    add = parser.add_argument
    add("paths", nargs="+", help="files, directories or globs of text or JSONL")
    add("--model", required=True, help=f"the model to start from: {MODEL}")
    add("--workdir", required=True, type=Path, help="work directory; it gets model/")
    add("--epochs", type=float, metavar="X", help="passes over the text (default: 3)")
    pairs = ("next", "order", "none")
    add("--pairs", choices=pairs, help="pairs of sentences (default: the model's)")
    add("--processes", type=int, metavar="N", help="to prepare the text; one per core")
    known = api.arguments_of(api.pretraining_run(), api.PRETRAINING_NAMES)
    del known["pairs"]
    run_flags.add(parser, known, "text, rows and masks")


def run(args: Namespace) -> None:
    from bert_jax import api
    from bert_jax.inference import jitted

    jitted.use_compilation_cache()
    besides = ("paths", "model", "workdir", "processes")
    settings = run_flags.settings(args, besides)
    api.continue_pretraining(
        *(args.model, args.paths, settings, args.processes, args.workdir), shell=True
    )
