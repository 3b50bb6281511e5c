"""Training, fine-tuning and pre-training in one call."""

import dataclasses
import importlib
import math
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from bert_jax import metrics
from bert_jax.data.records import RowConfig
from bert_jax.inference.model import Model, load
from bert_jax.models import Pretraining as PretrainingHead
from bert_jax.pretrained.families import family_of
from bert_jax.tasks.demo import Demonstrated
from bert_jax.tasks.fine_tuning import FineTuningConfig
from bert_jax.tasks.pretraining import PretrainingConfig
from bert_jax.tasks.run_config import log_every
from bert_jax.training import loop, runs, tensorboard
from bert_jax.training.config import TrainConfig
from bert_jax.training.optimizers import OptimizerConfig
from bert_jax.views import plots

# The config of each task of `finetune`.
TASKS = {
    "classify": "bert_jax.tasks.classification.ClassificationConfig",
    "answer": "bert_jax.tasks.answering.AnsweringConfig",
    "tag": "bert_jax.tasks.tagging.TaggingConfig",
    "choose": "bert_jax.tasks.choices.ChoiceConfig",
}


def train(config: TrainConfig, workdir: str | Path) -> Any:
    """Trains as `config` describes and returns the model; called again, it resumes.

    The tasks of this package return a `Model`; one of your own may return its own kind.

    Writes to `workdir`: config.json, metrics.jsonl, tensorboard/, checkpoints/<step>/,
    model/, which transformers loads too, scores.json, curves.png and predictions/. It
    ends with a demonstration of the model and a command to try next.

    With `config.seeds` above 1, each run has its own `workdir/seed_<n>/`. The model
    with the best held-out score is returned and copied to `workdir/model/`, and
    `workdir/scores.json` holds the mean, deviation and values of each score.

    Raises:
      ValueError: for an error in the config, the data or the directory, before anything
        is compiled.
      SystemExit: after SIGTERM or Ctrl-C, once the state is saved.

    >>> trained = train(config, "run")
    >>> trained.labels
    ('no', 'yes')
    """
    return _trained(config, workdir, is_kept=True)


def _trained(config: TrainConfig, workdir: str | Path, *, is_kept: bool) -> Any:
    """The model of a run; paths are printed only if `workdir` is kept."""
    finished = runs.train(config, workdir)
    model = finished.best.models["model"]
    if jax.process_index() == 0:
        for directory in finished.directories:
            plots.curves(directory)
        show(finished, model, is_kept)
    return model


def show(finished: runs.Runs, model: Any, is_kept: bool) -> None:
    """Prints scores of several seeds, a demonstration, and commands to try next."""
    task, workdir = finished.best.task, finished.workdir
    if finished.spread:
        name = f"{workdir}/model" if is_kept else "the model"
        print(
            f"\n{runs.table(finished.spread)}\n{name} is that of seed {finished.seed}"
        )
    next_steps = f"the model is in {workdir}/model"
    samples = ""
    if isinstance(task, Demonstrated):
        samples = task.demo(model, finished.best.workdir)
        print(samples)
        next_steps = task.next_steps(workdir)
    print(warn_of_no_gain(finished.best), end="")
    run = finished.best
    pictures = {"confusion": run.workdir / "confusion.png"}
    tensorboard.write_results(run.workdir, run.step, pictures, {"samples": samples})
    if is_kept:
        print(next_steps)


def warn_of_no_gain(run: loop.Run) -> str:
    """A line on scores no better than a constant answer has; "" for other results."""
    report, best = run.scores["eval"], run.task.best_metric
    scores = [best] if best in report else []
    if best.endswith("loss"):  # of several terms, each with a baseline of its own
        scores = [name for name in report if name.endswith("loss")]
    rows, found = len(run.task.rows["eval"]), []
    for name in scores:
        baseline = report.get(metrics.baseline_name(name))
        if baseline is None:
            continue
        if metrics.is_no_better(name, report[name], baseline, rows):
            found.append(f"{name} {report[name]:.4g} (constant: {baseline:.4g})")
    if not found:
        return ""
    return (
        f"\nno better than a constant answer: {', '.join(found)}; try more epochs or a "
        "higher learning rate\n"
    )


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
    """Fine-tunes a model on labelled files and returns the model of the best epoch.

    Args:
      model: the start: a `Model`, a directory or a name on the Hub.
      task: "classify" predicts a label, or a number, for each text or pair of texts;
        "answer" finds answers in texts; "tag" labels each word; "choose" picks the
        right one of several texts.
      train, dev: files to train on, and to evaluate on after each epoch.
      test: files to predict at the end, and to score if they have labels.
      epochs: passes over the training file.
      learning_rate: the highest one. It rises linearly over the first tenth of the
        steps and then falls linearly to 0.
      batch_size: rows in an update.
      max_length: of a row in tokens; None uses the default of the task.
      layer_decay, frozen: see `OptimizerConfig`.
      patience, seed, seeds: see `TrainConfig`.
      workdir: a directory for checkpoints, scores, predictions and model/, from which
        the same call resumes; None keeps no files.
      fields: other fields of the task's config, such as `text`, `pair` and `label`,
        the columns of the files, if they are not detected.

    Raises:
      ValueError: for an error in the arguments or the files, before anything is
        compiled.

    The defaults are from Devlin et al., 2018, appendix A.3.

    >>> how = {"train": "train.tsv", "dev": "dev.tsv", "epochs": 1, "max_length": 16}
    >>> finetune(model, "classify", **how).labels
    ('no', 'yes')
    """
    settings = make_task(task, fields)
    settings.train, settings.dev, settings.epochs = str(train), str(dev), epochs
    tests = (test,) if isinstance(test, str | Path) else test
    settings.test = tuple(map(str, tests))
    settings.max_length = max_length or settings.max_length
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
            task=settings,
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
        return _trained(config, home, is_kept=workdir is not None)


def make_task(task: str, fields: dict[str, Any]) -> FineTuningConfig:
    """The config of a task from its fields. Raises ValueError for unknown ones."""
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


def pretrain(
    model: Model | str | Path,
    paths: str | Path | Sequence[str | Path],
    *,
    epochs: float = 3,
    learning_rate: float = 2e-5,
    batch_size: int = 32,
    max_length: int = 128,
    pairs: str | None = None,
    held_out: float = 0.05,
    format: str = "auto",
    processes: int | None = None,
    seed: int = 0,
    workdir: str | Path | None = None,
) -> Model:
    """Continues to pre-train a model on raw text and returns it; see `Model.fill_mask`.

    This helps if the text is from another domain than the text that the model was
    trained on (Gururangan et al., 2020, section 3).

    Args:
      model: the start: a `Model`, a directory or a name on the Hub. Parts of the masked
        LM head that it does not have start at random.
      paths: files, directories or globs of text, see `data.corpus.read`.
      epochs: passes over the rows of the text.
      learning_rate: the highest one. It rises linearly over the first tenth of the
        updates and then falls linearly to 0. The default is the advice of
        google-research/bert for additional steps.
      batch_size: rows in an update.
      max_length: of a row in tokens; as many sequences as fit are packed into a row.
      pairs: "next" (next sentence), "order" or "none"; None uses the pairs that the
        model was trained with. Masked LM is always trained.
      held_out: the share of documents that are only evaluated on.
      format: of the text, see `data.corpus.read`.
      processes: the number that prepare the text; None: one for each core.
      seed: see `TrainConfig`.
      workdir: a directory for rows, checkpoints, metrics and model/, from which the
        same call resumes; None keeps no files.

    Raises:
      ValueError: for an error in the arguments, the model or the text, before anything
        is compiled.

    >>> adapted = pretrain(model, "text.txt", max_length=20, epochs=1)
    >>> (guesses,) = adapted.fill_mask("a [MASK] b", k=3)
    >>> len(guesses)
    3
    """
    if not epochs > 0 or batch_size < 1:
        raise ValueError(
            f"epochs={epochs} must be above 0, and batch_size={batch_size} at least 1"
        )
    start = model if isinstance(model, Model) else load(model)
    paths = [paths] if isinstance(paths, str | Path) else paths
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(workdir or scratch)
        task = PretrainingConfig(
            paths=tuple(map(str, paths)),
            format=format,
            tokenizer=str(home / "tokenizer"),
            recipe=RowConfig(
                sequence_length=min(max_length, start.config.max_length),
                pairs=pairs_of(start) if pairs is None else pairs,
                held_out=held_out,
            ),
        )
        start.check_tokenizer().save(home / "tokenizer")
        if start is model:
            start.save(home / "start")
            model = home / "start"
        rows = _prepared(task, home, processes)
        config = TrainConfig(
            encoder=start.config,
            task=dataclasses.replace(task, prepared=str(home / "data")),
            batch_size=batch_size,
            seed=seed,
            init_from=str(model),
            # A model of a run computes as that run did.
            dtype=start.config.dtype,
            remat=start.config.remat,
            attention=start.config.attention,
            keep=1,
        )
        config = _scheduled(config, rows, epochs, learning_rate)
        return _trained(config, home, is_kept=workdir is not None)


def _prepared(task: PretrainingConfig, home: Path, processes: int | None) -> int:
    """Makes the rows unless they exist, and returns the number to train on."""
    made = task.write_rows(home / "data", home / "tokenizer", 0, processes)
    if missing := {"train", "eval"} - made.splits.keys():
        shutil.rmtree(home / "data")  # or it would refuse another held_out
        raise ValueError(
            f"the text is too short: no document is in {', '.join(missing)}, with "
            f"held_out={task.recipe.held_out}; give more text, or change it"
        )
    print(made, flush=True)
    return made.splits["train"].rows


def _scheduled(
    config: TrainConfig, rows: int, epochs: float, learning_rate: float
) -> TrainConfig:
    """The config with the steps of all epochs, and an evaluation after each epoch."""
    steps = max(1, int(rows * epochs / config.batch_size))
    every = max(1, math.ceil(steps / epochs))
    optimizer = OptimizerConfig(
        name="adamw",
        learning_rate=learning_rate,
        schedule="linear",
        warmup_steps=steps // 10,
    )
    return dataclasses.replace(
        config,
        optimizer=optimizer,
        num_steps=steps,
        log_every=log_every(config.log_every, steps),
        eval_every=every,
        checkpoint_every=every,
    )


def pairs_of(model: Model) -> str:
    """The pairs that a model was pre-trained with; "none" where it has no such head."""
    if not isinstance(model.head, PretrainingHead):
        return "none"
    return family_of(model.config).pairs
