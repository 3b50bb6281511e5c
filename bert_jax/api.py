"""Training, fine-tuning and pre-training in one call."""

import contextlib
import dataclasses
import importlib
import json
import math
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax

from bert_jax import files, metrics
from bert_jax.data import memory_rows, optional
from bert_jax.inference.model import Model, load
from bert_jax.models import Pretraining as PretrainingHead
from bert_jax.models.config import dtype_name
from bert_jax.pretrained.families import family_of
from bert_jax.tasks.demo import Demonstrated
from bert_jax.tasks.fine_tuning import FineTuningConfig
from bert_jax.tasks.pretraining import PretrainingConfig
from bert_jax.tasks.run_config import log_every
from bert_jax.training import fields
from bert_jax.training.config import TrainConfig
from bert_jax.training.fields import Field
from bert_jax.training.optimizers import OptimizerConfig
from bert_jax.views import plots

if TYPE_CHECKING:
    from bert_jax.training.loop import Run
    from bert_jax.training.runs import Runs

# The config of each task of `finetune`.
TASKS = {
    "classify": "bert_jax.tasks.classification.ClassificationConfig",
    "answer": "bert_jax.tasks.answering.AnsweringConfig",
    "tag": "bert_jax.tasks.tagging.TaggingConfig",
    "choose": "bert_jax.tasks.choices.ChoiceConfig",
    "embed": "bert_jax.tasks.embedding.EmbeddingConfig",
    "rerank": "bert_jax.tasks.reranking.RerankingConfig",
    "embed_tokens": "bert_jax.tasks.late_interaction.LateInteractionConfig",
    "embed_sparse": "bert_jax.tasks.sparse_embedding.SparseEmbeddingConfig",
}

# The arguments of files, or of rows in memory.
SPLITS = ("train", "dev", "test")

# Devlin et al., 2018, appendix A.3; for additional steps google-research/bert, README.
EPOCHS, FINE_TUNING_RATE, PRETRAINING_RATE, BATCH_SIZE = 3.0, 5e-5, 2e-5, 32

# Arguments that come before all others in lists.
USUAL = ("learning_rate", "batch_size", "max_length", "epochs")

# Arguments whose names are not the last part of their path; None: no argument, because
# the function sets it.
FINE_TUNING_NAMES = {
    "init_from": None,
    "task.init_from": None,
    "task.rising_until": None,
    "optimizer.name": "optimizer",
}
PRETRAINING_NAMES = {
    "init_from": None,
    "task.paths": None,
    "task.prepared": None,
    "task.tokenizer": None,
    "task.vocabulary": None,
    "task.lowercase": None,
    "task.recipe.sequence_length": "max_length",
    "optimizer.name": "optimizer",
}


def train(config: TrainConfig, workdir: str | Path) -> Any:
    """Trains as `config` describes and returns the model; called again, it resumes.

    The tasks of this package return a `Model`; one of your own may return its own kind.

    Writes to `workdir`: config.json, metrics.jsonl, tensorboard/, checkpoints/<step>/,
    model/, which transformers loads too, scores.json, curves.png and predictions/. It
    ends with a demonstration of the model and a call to try next.

    With `config.seeds` above 1, each run has its own `workdir/seed_<n>/`. The model
    with the best held-out score is returned and copied to `workdir/model/`, and
    `workdir/scores.json` holds the mean, deviation and values of each score.

    Raises:
      ValueError: for an error in the config, the data or the directory, before anything
        is compiled.
      SystemExit: after a signal, once the state is saved; in a notebook it is a
        KeyboardInterrupt.

    >>> trained = train(config, "run")
    >>> trained.labels
    ('no', 'yes')
    """
    if not isinstance(config, TrainConfig):
        raise ValueError(
            f"config is a {type(config).__name__}; give a TrainConfig, such as "
            "configs/NAME.py has in get_config()"
        )
    return run(config, workdir)


def run(
    config: TrainConfig,
    workdir: str | Path,
    *,
    shell: bool = False,
    is_kept: bool = True,
) -> Any:
    """The model of a run, see `train`.

    Args:
      config, workdir: of the run.
      shell: True prints commands to try next, False calls in Python.
      is_kept: False for a `workdir` that will be deleted, which is not named then.
    """
    optional.check_installed("training")
    from bert_jax.training import runs, terminal

    with terminal.lasting_output():
        finished = runs.train(config, workdir)
        best = finished.best
        # A run that was complete before and keeps no checkpoints is on disk only.
        saved = best.workdir / "model"
        model = best.models["model"] if best.models else load(saved, config.dtype)
        if jax.process_index() == 0:
            for directory in finished.directories:
                plots.curves(directory)
            show(finished, model, is_kept, shell)
    return model


def show(finished: "Runs", model: Any, is_kept: bool, shell: bool) -> None:
    """Prints scores, a demonstration, and what to type next."""
    from bert_jax.training import runs, tensorboard

    task, workdir = finished.best.task, finished.workdir
    print(f"\n{runs.score_table(finished)}")
    if finished.spread:
        name = f"{workdir}/model" if is_kept else "the model"
        print(f"{name} is that of seed {finished.seed}")
    next_steps = f"the model is in {workdir}/model"
    samples = ""
    if isinstance(task, Demonstrated):
        samples = task.demo(model, finished.best.workdir)
        print(samples)
        next_steps = task.next_steps(workdir, shell)
    print(warn_of_no_gain(finished.best), end="")
    for directory in finished.directories:
        # The samples are answers of the model that is returned, that of one seed.
        is_best = directory == finished.best.workdir
        texts = {"samples": samples} if is_best else {}
        step = json.loads((directory / "scores.json").read_text())["step"]
        pictures = {"confusion": directory / "confusion.png"}
        tensorboard.write_results(directory, step, pictures, texts)
    if is_kept:
        print(next_steps)


def warn_of_no_gain(run: "Run") -> str:
    """A line on scores no better than a constant answer has; "" for other results."""
    report, best = run.scores["eval"], run.task.best_metric
    scores = [best] if best in report else []
    if best.endswith("loss"):  # of several terms, each with a baseline of its own
        scores = [name for name in report if name.endswith("loss")]
    rows, worse = len(run.task.rows["eval"]), []
    for name in scores:
        baseline = report.get(metrics.baseline_name(name))
        if baseline is None:
            continue
        if metrics.is_no_better(name, report[name], baseline, rows):
            worse.append(f"{name} {report[name]:.4g} (constant: {baseline:.4g})")
    if not worse:
        return ""
    return (
        f"\nno better than a constant answer: {', '.join(worse)}; train for longer, "
        "or try a higher learning rate\n"
    )


def finetune(
    model: Model | str | Path,
    task: str,
    *,
    train: Any,
    dev: Any,
    test: Any = (),
    epochs: float | None = None,
    learning_rate: float = FINE_TUNING_RATE,
    batch_size: int = BATCH_SIZE,
    max_length: int | None = None,
    workdir: str | Path | None = None,
    **settings: Any,
) -> Model:
    """Fine-tunes a model on labelled rows and returns the model of the best epoch.

    Args:
      model: the start: a `Model`, a directory or a name on the Hub.
      task: "classify" predicts a label, or a number, for each text or pair of texts;
        "answer" finds answers in texts; "tag" labels each word; "choose" picks the
        right one of several texts; "embed" trains the vectors of `Model.embed`,
        "embed_sparse" those of `Model.embed_sparse`, and "embed_tokens" those of
        `Model.embed_tokens`; "rerank" trains the scores of `Model.rank`.
      train, dev: rows to train on, and to evaluate on after each epoch: a file, or
        dictionaries or tuples, a table of pandas or Arrow, a `datasets.Dataset`. For
        "classify" `dev` may be a share of `train`, such as 0.1.
      test: rows to predict at the end, one file or several, and to score if they have
        labels.
      epochs: passes over the training file; None: 3, unless `num_steps` is set.
      learning_rate: the highest one. It rises linearly over the first tenth of the
        steps and then falls linearly to 0.
      batch_size: rows in an update.
      max_length: of a row in tokens; None: 128, for "answer" 384, or the positions of
        the model if there are fewer.
      workdir: a directory for checkpoints, scores, predictions and model/, from which
        the same call resumes; None keeps no files. Checkpoints are deleted at the end,
        unless `keep_checkpoints` is True.
      settings: any field of `TrainConfig`, of `OptimizerConfig` and of the task's
        config by its own name, such as `seeds`, `dtype`, `weight_decay`, `frozen`, and
        `text`, `pair` and `label`, the columns of the files. `optimizer` is the name of
        the optimizer. `bert-jax finetune --help` lists all with their defaults.
        `dtype` is that of a `Model` unless it is set.

    Raises:
      ValueError: for an error in the arguments or the files, before anything is
        compiled.

    The defaults are from Devlin et al., 2018, appendix A.3.

    >>> how = {"train": "train.tsv", "dev": "dev.tsv", "epochs": 1, "max_length": 16}
    >>> finetune(model, "classify", **how).labels
    ('no', 'yes')
    """
    named = {
        "train": train,
        "dev": dev,
        "test": test,
        "epochs": epochs,
        "learning_rate": learning_rate,
        "batch_size": batch_size,
        "max_length": max_length,
    }
    return fine_tune(model, task, _set(named, settings), workdir)


def fine_tune(
    model: Model | str | Path,
    task: str,
    settings: Mapping[str, Any],
    workdir: str | Path | None,
    *,
    shell: bool = False,
) -> Model:
    """The model of `finetune` with arguments by name.

    With `shell`, errors and what to try next are flags and commands.
    """
    optional.check_installed("fine-tuning")
    base = fine_tuning_run(task)
    known = arguments_of(base, FINE_TUNING_NAMES)
    with _call(known, workdir, shell) as home:
        fields.check_names(settings, known, f"finetune {task}" if shell else repr(task))
        files_of_rows = {f"{home}/data/{x}.jsonl": x for x in SPLITS}
        with memory_rows.errors_named(files_of_rows):
            settings = _written(settings, home)
            config = _with_settings(base, known, settings)
            if "num_steps" in settings:
                config.task.epochs = 0.0
                warmup = int(config.num_steps * config.task.warmup)
                config.optimizer.warmup_steps = settings.get("warmup_steps", warmup)
            config = _started(config, model, home, settings)
            positions = config.task.checkpoint.head.encoder.config.max_length
            if "max_length" not in settings:
                config.task.max_length = min(config.task.max_length, positions)
            trained = run(config, home, shell=shell, is_kept=workdir is not None)
            if not config.keep_checkpoints:
                shutil.rmtree(home / "start", ignore_errors=True)
            return trained


@contextlib.contextmanager
def _call(
    known: Mapping[str, Field], workdir: str | Path | None, shell: bool
) -> Iterator[Path]:
    """The directory of a call's run; errors inside have the names of its arguments."""
    with (
        fields.errors_renamed(*_names(known, shell)),
        tempfile.TemporaryDirectory() as scratch,
    ):
        home = files.local_path(workdir) if workdir else Path(scratch) / "run"
        with _refused_leaves(home, "start", "tokenizer", "data"):
            yield home


@contextlib.contextmanager
def _refused_leaves(home: Path, *parts: str) -> Iterator[None]:
    """Removes the parts of a work directory that a call made and was then refused.

    A run that has begun, which has a config.json, keeps all.
    """
    made = [home / part for part in parts if not (home / part).exists()]
    try:
        yield
    except ValueError:
        if not (home / "config.json").exists():
            for part in made:
                shutil.rmtree(part, ignore_errors=True)
            with contextlib.suppress(OSError):  # of what others keep there
                home.rmdir()
        raise


def fine_tuning_run(task: str) -> TrainConfig:
    """The run of `finetune` before anything is set."""
    config = _base_run(make_task(task, {}), FINE_TUNING_RATE)
    return dataclasses.replace(config, export="best")


def pretraining_run() -> TrainConfig:
    """The run of `pretrain` before anything is set."""
    return _base_run(PretrainingConfig(), PRETRAINING_RATE)


def _base_run(task: Any, learning_rate: float) -> TrainConfig:
    """A run that starts at a model."""
    optimizer = OptimizerConfig(
        name="adamw", learning_rate=learning_rate, schedule="linear"
    )
    return TrainConfig(
        encoder=None, task=task, optimizer=optimizer, batch_size=BATCH_SIZE, keep=1
    )


def make_task(task: str, values: Mapping[str, Any]) -> FineTuningConfig:
    """The config of a task with values of its fields."""
    if task not in TASKS:
        raise ValueError(f"task={task!r} is unknown; choose one of {', '.join(TASKS)}")
    module, name = TASKS[task].rsplit(".", 1)
    config: FineTuningConfig = getattr(importlib.import_module(module), name)(**values)
    return config


def _started(
    config: TrainConfig,
    model: Model | str | Path,
    home: Path,
    settings: Mapping[str, Any],
) -> TrainConfig:
    """The config with its start; a `Model` is saved below `home`."""
    from bert_jax.training import resume

    if isinstance(model, Model):
        resume.check_workdir(home)
        model.save(home / "start")
        dtype = settings.get("dtype", model.config.dtype)
        config = dataclasses.replace(config, dtype=dtype)
        model = home / "start"
    if not isinstance(model, str | os.PathLike):
        raise ValueError(
            f"model is a {type(model).__name__}; give a Model, a directory or a name"
        )
    config.task.init_from = os.fspath(model)
    return dataclasses.replace(config, init_from=os.fspath(model))


def _written(settings: Mapping[str, Any], home: Path) -> dict[str, Any]:
    """The settings with files in place of rows in memory, written below `home`."""
    from bert_jax.training import resume

    if isinstance(settings.get("dev"), float):
        settings = {**settings, "dev": str(settings["dev"])}
    for name in ("train", "dev"):
        if isinstance(settings.get(name), list | tuple) and not settings[name]:
            raise ValueError(f"{name} has no rows; give at least one")
    paths = {
        name: home / f"data/{name}.jsonl"
        for name in SPLITS
        if name in settings and memory_rows.is_rows(settings[name])
    }
    if paths:
        resume.check_workdir(home)
    for name, path in paths.items():
        memory_rows.write(settings[name], path, name)
    return {**settings, **{name: str(path) for name, path in paths.items()}}


def _check_length_of_run(settings: Mapping[str, Any]) -> None:
    """Raises ValueError for no epochs, and for both epochs and steps."""
    epochs = settings.get("epochs")
    if epochs is None:
        return
    if "num_steps" in settings:
        raise ValueError(
            f"task.epochs={epochs} and num_steps={settings['num_steps']} both set the "
            "length of the run; leave one out"
        )
    if not isinstance(epochs, int | float) or not epochs > 0:
        raise ValueError(
            f"task.epochs={epochs} must be above 0; num_steps=N sets a number of steps"
        )


def _with_settings(
    config: TrainConfig, known: Mapping[str, Field], settings: Mapping[str, Any]
) -> TrainConfig:
    """The config with values by flat name."""
    _check_length_of_run(settings)
    values = {
        known[name].path: fields.converted(known[name].dotted, value, known[name])
        for name, value in settings.items()
        if name in known
    }
    changed: TrainConfig = fields.replaced(config, values)
    return changed


def _set(named: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call, without those that are None by default.

    A type to compute in, such as `jnp.bfloat16`, is replaced by its name.
    """
    values = {name: x for name, x in named.items() if x is not None} | dict(settings)
    if "dtype" in values:
        values["dtype"] = dtype_name(values["dtype"])
    return values


def _names(known: Mapping[str, Field], shell: bool) -> tuple[dict[str, str], str]:
    """The names of fields in an interface by dotted path, and the sign of a value."""
    names = {field.dotted: name for name, field in known.items()}
    names |= {"init_from": "model", "task.epochs": "epochs", "workdir": "workdir"}
    # Errors of these do not name the config that they are in.
    inner = {path.removeprefix("task."): name for path, name in names.items()}
    names |= {path: name for path, name in inner.items() if "." in path}
    if shell:
        return {path: flag(name) for path, name in names.items()}, " "
    return names, "="


def arguments_of(
    config: TrainConfig, names: Mapping[str, str | None]
) -> dict[str, Field]:
    """The arguments that set fields of a run, the usual ones first.

    >>> list(arguments_of(config, FINE_TUNING_NAMES))[:2]
    ['learning_rate', 'batch_size']
    """
    known = fields.flat_names(config, names)
    usual = [name for name in USUAL if name in known]
    return {name: known[name] for name in dict.fromkeys([*usual, *known])}


def flag(name: str) -> str:
    """The flag of an argument.

    >>> flag("max_length")
    '--max-length'
    """
    return f"--{name.replace('_', '-')}"


def pretrain(
    model: Model | str | Path,
    paths: str | Path | Sequence[str | Path],
    *,
    epochs: float | None = None,
    learning_rate: float = PRETRAINING_RATE,
    batch_size: int = BATCH_SIZE,
    max_length: int | None = None,
    pairs: str | None = None,
    processes: int | None = None,
    workdir: str | Path | None = None,
    **settings: Any,
) -> Model:
    """Continues to pre-train a model on raw text and returns it; see `Model.fill_mask`.

    This helps if the text is from another domain than the text that the model was
    trained on (Gururangan et al., 2020, section 3).

    Args:
      model: the start: a `Model`, a directory or a name on the Hub. Parts of the masked
        LM head that it does not have start at random.
      paths: files, directories or globs of text, see `data.corpus.read`.
      epochs: passes over the rows of the text; None: 3, unless `num_steps` is set.
      learning_rate: the highest one. It rises linearly over the first tenth of the
        updates and then falls linearly to 0. The default is the advice of
        google-research/bert for additional steps.
      batch_size: rows in an update.
      max_length: of a row in tokens; as many sequences as fit are packed into a row.
        None: 128, or the positions of the model if there are fewer.
      pairs: "next" (next sentence), "order" or "none"; None uses the pairs that the
        model was trained with. Masked LM is always trained.
      processes: the number that prepare the text; None: one for each core.
      workdir: a directory for rows, checkpoints, metrics and model/, from which the
        same call resumes; None keeps no files.
      settings: any field of `TrainConfig`, of `OptimizerConfig`, of `PretrainingConfig`
        and of its rules for rows and masks by its own name, such as `held_out`,
        `format`, `dtype` and `whole_words`. `optimizer` is the name of the optimizer.
        `bert-jax pretrain --help` lists all with their defaults.

    Raises:
      ValueError: for an error in the arguments, the model or the text, before anything
        is compiled.

    >>> adapted = pretrain(model, "text.txt", max_length=20, epochs=1)
    >>> (guesses,) = adapted.fill_mask("a [MASK] b", k=3)
    >>> len(guesses)
    3
    """
    named = {
        "epochs": epochs,
        "learning_rate": learning_rate,
        "batch_size": batch_size,
        "max_length": max_length,
        "pairs": pairs,
    }
    return continue_pretraining(model, paths, _set(named, settings), processes, workdir)


def continue_pretraining(
    model: Model | str | Path,
    paths: str | Path | Sequence[str | Path],
    settings: Mapping[str, Any],
    processes: int | None,
    workdir: str | Path | None,
    *,
    shell: bool = False,
) -> Model:
    """The model of `pretrain` with arguments by name.

    With `shell`, errors and what to try next are flags and commands.
    """
    optional.check_installed("pre-training")
    from bert_jax.training import resume

    base = pretraining_run()
    known = arguments_of(base, PRETRAINING_NAMES)
    paths = [paths] if isinstance(paths, str | Path) else paths
    with _call(known, workdir, shell) as home:
        fields.check_names(settings, [*known, "epochs"], "pretrain")
        config = _with_settings(base, known, settings)
        if config.batch_size < 1:  # the number of steps follows from it
            raise ValueError(f"batch_size={config.batch_size} must be above 0")
        start = model if isinstance(model, Model) else load(model)
        resume.check_workdir(home)
        config = _on_text(config, start, settings, paths, home)
        start.check_tokenizer().save(home / "tokenizer")
        if start is model:
            start.save(home / "start")
            model = home / "start"
        rows = _prepared(config.task, home, processes)
        config.task.prepared = str(home / "data")
        config = dataclasses.replace(config, init_from=str(model))
        config = _scheduled(config, rows, settings)
        return run(config, home, shell=shell, is_kept=workdir is not None)


def _on_text(
    config: TrainConfig,
    start: Model,
    settings: Mapping[str, Any],
    paths: Sequence[str | Path],
    home: Path,
) -> TrainConfig:
    """The config with text, rows and encoder for a model; what is set stays."""
    positions, recipe = start.config.max_length, config.task.recipe
    if recipe.sequence_length > positions:
        if "max_length" in settings:
            raise ValueError(
                f"task.recipe.sequence_length={recipe.sequence_length} is more than "
                f"the {positions} positions of the model; lower it"
            )
        recipe = dataclasses.replace(recipe, sequence_length=positions)
    if "pairs" not in settings:
        recipe = dataclasses.replace(recipe, pairs=pairs_of(start))
    task = dataclasses.replace(
        config.task,
        paths=tuple(map(str, paths)),
        tokenizer=str(home / "tokenizer"),
        recipe=recipe,
    )
    # A model of a run computes as that run did.
    own = ("dtype", "remat", "attention")
    compute = {x: getattr(start.config, x) for x in own if x not in settings}
    config = dataclasses.replace(config, task=task, **compute)
    encoder = {name: getattr(config, name) for name in own}
    return dataclasses.replace(
        config, encoder=dataclasses.replace(start.config, **encoder)
    )


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
    config: TrainConfig, rows: int, settings: Mapping[str, Any]
) -> TrainConfig:
    """The config with the steps of all epochs, and an evaluation after each epoch."""
    epochs = settings.get("epochs", EPOCHS)
    steps = max(1, int(rows * epochs / config.batch_size))
    if "num_steps" in settings:
        steps, epochs = config.num_steps, config.num_steps * config.batch_size / rows
    every = max(1, math.ceil(steps / epochs))
    return dataclasses.replace(
        config,
        optimizer=dataclasses.replace(
            config.optimizer, warmup_steps=settings.get("warmup_steps", steps // 10)
        ),
        num_steps=steps,
        log_every=log_every(config.log_every, steps),
        eval_every=config.eval_every or every,
        checkpoint_every=config.checkpoint_every or every,
    )


def pairs_of(model: Model) -> str:
    """The pairs that a model was pre-trained with; "none" where it has no such head."""
    if not isinstance(model.head, PretrainingHead):
        return "none"
    return family_of(model.config).pairs
