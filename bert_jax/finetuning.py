"""Fine-tuning in one call."""

import importlib
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bert_jax.predict import Model
from bert_jax.training.config import TrainConfig
from bert_jax.training.optimizers import OptimizerConfig
from bert_jax.training.runs import train as run

# What a model can be taught, and the config of the task.
TASKS = {
    "classify": "bert_jax.tasks.classification.Classification",
    "answer": "bert_jax.tasks.answering.Answering",
    "tag": "bert_jax.tasks.tagging.Tagging",
    "choose": "bert_jax.tasks.choices.Choices",
}


def finetune(
    model: Model | str | Path,
    task: str,
    *,
    train: str | Path,
    dev: str | Path,
    test: str | Path | Sequence[str | Path] = (),
    epochs: float = 3,
    learning_rate: float = 5e-5,
    batch_size: int = 32,
    max_length: int | None = None,
    layer_decay: float = 1.0,
    frozen: Sequence[str] = (),
    patience: int = 0,
    seed: int = 0,
    seeds: int = 1,
    workdir: str | Path | None = None,
    **fields: Any,
) -> Model:
    """Trains a model on labelled files and returns the best one, with its verbs.

    Args:
      model: what to start from: a `Model`, a directory or a name on the Hub.
      task: what to teach: "classify" for one label, or number, for each text or pair,
        "answer" for answers in texts, "tag" for a label for each word, "choose" for the
        right one of several texts.
      train, dev: files to train on and to evaluate on, after each epoch.
      test: files to predict in the end, and to score if they have labels.
      epochs, learning_rate, batch_size: of the training; the rate rises for a tenth of
        it and falls to 0 in a line.
      max_length: of a row in tokens; None takes the task's.
      layer_decay, frozen: see `OptimizerConfig`.
      patience, seed, seeds: see `TrainConfig`.
      workdir: keeps checkpoints, scores, predictions and model/, and lets the same call
        resume; None keeps nothing.
      fields: of the task's config, such as `text`, `pair` and `label` for the columns
        that are not found.

    Raises:
      ValueError: for anything wrong with the arguments or the files, before anything
        compiles.

    The recipe is that of Devlin et al., 2018, appendix A.3.

    >>> how = {"train": "train.tsv", "dev": "dev.tsv", "epochs": 1, "max_length": 16}
    >>> finetune(model, "classify", **how).labels
    ('no', 'yes')
    """
    goal = goal_of(task, fields)
    goal.train, goal.dev, goal.epochs = str(train), str(dev), epochs
    goal.test = (str(test),) if isinstance(test, str | Path) else tuple(map(str, test))
    goal.max_length = max_length or goal.max_length
    with tempfile.TemporaryDirectory() as scratch:
        if isinstance(model, Model):
            model.save(start := Path(workdir or scratch) / "start")
            model = start
        optimizer = OptimizerConfig(
            name="adamw",
            learning_rate=learning_rate,
            schedule="linear",
            layer_decay=layer_decay,
            frozen=tuple(frozen),
        )
        config = TrainConfig(
            encoder=None,
            task=goal,
            optimizer=optimizer,
            batch_size=batch_size,
            seed=seed,
            seeds=seeds,
            patience=patience,
            init_from=str(model),
            keep=1,
            export="best",
        )
        home = workdir or Path(scratch) / "run"
        return run(config, home, kept=workdir is not None)


def goal_of(task: str, fields: dict[str, Any]) -> Any:
    """The config of a task."""
    if task not in TASKS:
        raise ValueError(f"task={task!r} is unknown; choose one of {', '.join(TASKS)}")
    module, name = TASKS[task].rsplit(".", 1)
    kind = getattr(importlib.import_module(module), name)
    known = kind.__dataclass_fields__.keys()
    for field in fields.keys() - known:
        raise ValueError(
            f"{task!r} has no {field!r}; choose from {', '.join(sorted(known))}"
        )
    lists = {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}
    return kind(**lists)
