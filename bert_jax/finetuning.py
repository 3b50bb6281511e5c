"""Fine-tuning in one call."""

import tempfile
from pathlib import Path

from bert_jax.predict import Model
from bert_jax.tasks.classification import Classification
from bert_jax.training.config import TrainConfig
from bert_jax.training.loop import train as run
from bert_jax.training.optimizers import OptimizerConfig

TASKS = ("classify",)


def finetune(
    model: Model | str | Path,
    task: str,
    *,
    train: str | Path,
    dev: str | Path,
    epochs: float = 3,
    learning_rate: float = 5e-5,
    batch_size: int = 32,
    max_length: int = 128,
    seed: int = 0,
    text: str | int | None = None,
    pair: str | int | None = None,
    label: str | int | None = None,
    labels: tuple[str, ...] = (),
    metrics: tuple[str, ...] = (),
    workdir: str | Path | None = None,
) -> Model:
    """Trains a model on labelled files and returns it, with its verbs.

    Args:
      model: what to start from: a `Model`, a directory or a name on the Hub.
      task: "classify": one label for each text or pair; whole numbers and words are
        classes, other numbers are predicted as such.
      train, dev: .tsv, .csv or .jsonl files to train on and to evaluate on.
      epochs, learning_rate, batch_size, max_length, seed: of the training; the rate
        rises for a tenth of it and falls to 0 in a line.
      text, pair, label: columns by name or position from 0, where they are not found.
      labels: names of the classes by number; none takes those of `train`.
      metrics: scores, the first of which chooses the best checkpoint.
      workdir: keeps checkpoints, metrics.jsonl and model/, and lets the same call
        resume; None keeps nothing.

    Raises:
      ValueError: for anything wrong with the arguments or the files, before anything
        compiles.
    """
    if task not in TASKS:
        raise ValueError(f"task={task!r} is unknown; choose one of {', '.join(TASKS)}")
    goal = Classification(
        train=str(train),
        dev=str(dev),
        text=text,
        pair=pair,
        label=label,
        labels=tuple(labels),
        metrics=tuple(metrics),
        max_length=max_length,
        epochs=epochs,
    )
    with tempfile.TemporaryDirectory() as scratch:
        if isinstance(model, Model):
            model.save(start := Path(workdir or scratch) / "start")
            model = start
        config = TrainConfig(
            encoder=None,
            task=goal,
            optimizer=OptimizerConfig(
                name="adamw", learning_rate=learning_rate, schedule="linear"
            ),
            batch_size=batch_size,
            seed=seed,
            init_from=str(model),
            keep=1,
        )
        return run(config, workdir or Path(scratch) / "run")
