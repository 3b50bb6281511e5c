"""Trains a model on labelled files; WORKDIR/model is the best one on the dev file.

Examples:
  bert-jax finetune classify --model DIR --train a.tsv --dev b.tsv --workdir runs/mine
  bert-jax finetune tag --model DIR --train a.conll --dev b.conll --workdir runs/words
  bert-jax finetune embed --model DIR --train a.jsonl --dev b.jsonl --workdir runs/v
  bert-jax classify "a joy from start to end" --model runs/mine

The same command resumes a run that was stopped. A complete run keeps its model and its
scores, and no checkpoints.
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from bert_jax.cli import run_flags
from bert_jax.cli.model_commands import MODEL

TRAINS = True

# Flags with a text of their own; all others are described by the fields of configs.
OWN = {"train", "dev", "test", "epochs"}


def add_arguments(parser: ArgumentParser) -> None:
    parser.usage = (
        "bert-jax finetune TASK --model DIR --train FILE --dev FILE --workdir DIR …"
    )
    from bert_jax import api

    add = parser.add_argument
    add("task", choices=tuple(api.TASKS), help="the task")
    add("--model", required=True, help=f"the model to start from: {MODEL}")
    add("--train", required=True, help="file to train on")
    add("--dev", required=True, help="file to evaluate on, after each epoch")
    add("--test", nargs="+", help="files to predict at the end")
    add("--workdir", required=True, type=Path, help="work directory; it gets model/")
    add("--epochs", type=float, metavar="X", help="passes over the file (default: 3)")
    names = {
        task: api.arguments_of(api.fine_tuning_run(task), api.FINE_TUNING_NAMES)
        for task in api.TASKS
    }
    shared = set.intersection(*map(set, names.values())) - OWN
    first = names[next(iter(names))]
    run_flags.add(parser, {k: first[k] for k in first if k in shared}, "every task")
    known = shared | OWN
    for task, own in names.items():
        run_flags.add(parser, {k: own[k] for k in own if k not in known}, task)
        known |= own.keys()


def run(args: Namespace) -> None:
    from bert_jax import api
    from bert_jax.inference import jitted

    jitted.use_compilation_cache()
    settings = run_flags.settings(args, besides=("task", "model", "workdir"))
    api.fine_tune(args.model, args.task, settings, args.workdir, shell=True)
