"""Teaches a model from labelled files; OUT/model is the best one by the dev file.

Examples:
  bert-jax finetune classify --model DIR --train train.tsv --dev dev.tsv --out runs/mine
  bert-jax finetune tag --model DIR --train a.conll --dev b.conll --out runs/words
  bert-jax classify "a joy from start to end" --model runs/mine

The same command goes on where it was stopped. `train.py` has a flag for everything.
"""

from pathlib import Path

from bert_jax.cli import opening

TRAINS = True


def arguments(add) -> None:
    tasks = ("classify", "answer", "tag", "choose")
    add("task", choices=tasks, help="what to teach")
    add("--model", required=True, help=f"to start from: {opening.MODEL}")
    add("--train", required=True, help="file to train on")
    add("--dev", required=True, help="file to evaluate on, after each epoch")
    add("--test", nargs="+", default=(), help="files to predict in the end")
    add("--out", required=True, type=Path, help="work directory; OUT/model is made")
    add("--epochs", type=float, default=3, help="passes over the file")
    add("--learning-rate", type=float, default=5e-5)
    add("--batch-size", type=int, default=32, help="rows in an update")
    add("--length", type=int, help="of a row in tokens; default: the task's")
    add("--seed", type=int, default=0)
    add("--seeds", type=int, default=1, help="runs, whose scores are averaged")
    add("--text", help="its column, where it is not found")
    add("--pair", help="likewise")
    add("--label", help="likewise")
    add("--teacher", help="a model taught the same, whose predictions are learnt too")


def run(args) -> None:
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
        max_length=args.length,
        seed=args.seed,
        seeds=args.seeds,
        workdir=args.out,
        **{name: x for name, x in fields.items() if x is not None},
    )
