"""Trains a model on labelled files; WORKDIR/model is the best one on the dev file.

Examples:
  bert-jax finetune classify --model DIR --train a.tsv --dev b.tsv --workdir runs/mine
  bert-jax finetune tag --model DIR --train a.conll --dev b.conll --workdir runs/words
  bert-jax classify "a joy from start to end" --model runs/mine

The same command resumes a run that was stopped. `train.py` has a flag for everything.
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from bert_jax.cli.model_commands import MODEL

TRAINS = True


def add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    tasks = ("classify", "answer", "tag", "choose")
    add("task", choices=tasks, help="the task")
    add("--model", required=True, help=f"the model to start from: {MODEL}")
    add("--train", required=True, help="file to train on")
    add("--dev", required=True, help="file to evaluate on, after each epoch")
    add("--test", nargs="+", default=(), help="files to predict at the end")
    add(
        "--workdir",
        required=True,
        type=Path,
        help="work directory; makes WORKDIR/model",
    )
    add("--epochs", type=float, default=3, help="passes over the file")
    add("--learning-rate", type=float, default=5e-5)
    add("--batch-size", type=int, default=32, help="rows in an update")
    add("--max-length", type=int, help="tokens in a row; default: the task's")
    add("--seed", type=int, default=0)
    add("--seeds", type=int, default=1, help="runs, of which scores are averaged")
    add("--text", help="column of the text, if it is not detected")
    add("--pair", help="column of the second text, if it is not detected")
    add("--label", help="column of the label, if it is not detected")
    add("--teacher", help="a model of the same task, to learn its predictions too")


def run(args: Namespace) -> None:
    import bert_jax
    from bert_jax.inference import jitted

    jitted.use_compilation_cache()
    names = ("text", "pair", "label", "teacher")
    fields = {name: getattr(args, name) for name in names}
    bert_jax.finetune(
        args.model,
        args.task,
        train=args.train,
        dev=args.dev,
        test=args.test,
        epochs=args.epochs,
        learning_rate=args.learning_rate,
        batch_size=args.batch_size,
        max_length=args.max_length,
        seed=args.seed,
        seeds=args.seeds,
        workdir=args.workdir,
        **{name: x for name, x in fields.items() if x is not None},
    )
