"""The training loop, top to bottom."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from bert_jax import plots, stamps
from bert_jax.data import pipeline
from bert_jax.training import record, sharding
from bert_jax.training.checkpoints import Checkpoints, Restored
from bert_jax.training.config import TrainConfig
from bert_jax.training.guard import Guard
from bert_jax.training.logs import MetricsWriter, ProgressBar
from bert_jax.training.optimizers import learning_rate
from bert_jax.training.patience import Patience
from bert_jax.training.program import Program, check_given, make_program
from bert_jax.training.signals import StopSignals
from bert_jax.training.step import TrainState
from bert_jax.training.window import Window


def train(config: TrainConfig, workdir: str | Path) -> Any:
    """Trains as `config` says and returns a `Model`; called again, it resumes.

    Writes to `workdir`: config.json, metrics.jsonl, tensorboard/, checkpoints/<step>/,
    model/, which transformers loads too, scores.json, curves.png and predictions/.

    Raises:
      ValueError: for anything wrong with the config, the data or the directory, before
        anything compiles.
      SystemExit: after SIGTERM or Ctrl-C, when the state is saved.
    """
    # What to do; all of it is checked before anything compiles.
    config = config.task.complete(config)
    config.validate()
    mesh = sharding.make_mesh(config.model_parallel)
    sharding.check_batch(config.batch_size, config.accumulation, mesh)
    workdir = record.claim(workdir, config)
    task = config.task.prepare(workdir, config.encoder, config.seed)
    program = make_program(config, task, mesh)
    record.keep(workdir, config)
    rate = jax.jit(learning_rate(config.optimizer, config.num_steps))

    with (
        Checkpoints(workdir / "checkpoints", keep=config.keep) as checkpoints,
        MetricsWriter(workdir) as metrics,
        StopSignals() as signals,
    ):
        # Where to go on from.
        found = restore(checkpoints, program, config, task)
        state = found.state if found else start_from(config.init_from, program, task)
        start = found.step if found else 0
        window = Window(task.summary, found.meta["window"] if found else None)
        patience = Patience(config.patience, found.meta["patience"] if found else None)
        metrics.truncate_after(start)
        rest = [] if patience.exhausted else batches(config, task, program, start)

        # The loop itself.
        step, guard = start, Guard()
        with ProgressBar(config.num_steps, start) as bar:
            for step, batch in enumerate(rest, start + 1):
                state, totals = program.train_step(state, batch)
                window.add(totals)
                guard.add(step, totals["skipped"])
                if guard.exhausted:
                    raise ValueError(guard.explain(config, task.source("train")))
                bar.advance()
                checkpoints.check()
                ends = step == config.num_steps
                if ends or step % config.log_every == 0:
                    report = {"learning_rate": float(rate(step - 1)), **window.report()}
                    metrics.write(step, "train", report)
                    bar.report(step, report["loss"], report.get("tokens_per_second", 0))
                score = None
                if ends or step % config.eval_every == 0:
                    window.pause()
                    report, _ = evaluate(config, task, program, state.params, "eval")
                    metrics.write(step, "eval", report)
                    scores = ", ".join(f"{k} {v:.4g}" for k, v in report.items())
                    bar.note(f"held out, step {step}: {scores}")
                    score = goodness(report, task.best)
                    patience.add(score)
                    ends = ends or patience.exhausted
                if ends or signals.received or step % config.checkpoint_every == 0:
                    window.pause()
                    meta = record.describe(config, task, step)
                    meta |= {"window": window.totals(), "patience": patience.state}
                    checkpoints.save(step, state, meta, score=score)
                if signals.received:
                    raise SystemExit(
                        f"{signals.received}: stopped at step {step}, saved"
                    )
                if ends:
                    break

        if config.export == "best" and (
            best := checkpoints.restore_best(program.state)
        ):
            step, state = best.step, best.state
        return finish(config, task, program, state.params, step, workdir)


def batches(config: TrainConfig, task: Any, program: Program, start: int) -> Iterator:
    """Training batches on the devices, from step `start` on, two ahead."""
    rows = pipeline.batches(
        task.source("train"),
        batch_size=config.batch_size,
        seed=config.seed,
        start=start * config.batch_size,
        stop=config.num_steps * config.batch_size,
        process_index=jax.process_index(),
        process_count=jax.process_count(),
    )
    return sharding.prefetch(rows, program.place)


def evaluate(
    config: TrainConfig, task: Any, program: Program, params: Any, split: str
) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """Averages and scores on all rows of a split, and predictions `[N, ...]`.

    Rows to predict that have no labels have no scores.
    """
    source = task.source(split)
    rows = pipeline.eval_batches(
        source,
        batch_size=config.batch_size,
        process_index=jax.process_index(),
        process_count=jax.process_count(),
    )
    totals, predictions = program.evaluate(params, rows)
    scores = task.score(predictions, source)
    if split != "eval" and not scores:  # rows without labels
        return {}, predictions
    return {**task.summary(totals), **scores}, predictions


def finish(
    config: TrainConfig,
    task: Any,
    program: Program,
    params: Any,
    step: int,
    workdir: Path,
) -> Any:
    """Writes the model of `step`, what it predicts and how the run went."""
    # First, for scores may find what is part of the model, such as a threshold.
    scores = predict(config, task, program, params, workdir)
    model = task.trained(program.model, program.gather(params))
    if jax.process_index() == 0:
        model.save(workdir / "model")
        report = {"seed": config.seed, "step": step, "scores": scores}
        report["goodness"] = goodness(scores["eval"], task.best)
        stamps.write_json(workdir / "scores.json", report)
        plots.curves(workdir)
        print(task.closing_words(model, workdir))
    return model


def predict(
    config: TrainConfig, task: Any, program: Program, params: Any, workdir: Path
) -> dict[str, dict[str, float]]:
    """Writes predictions for every split that the task wants; scores by split."""
    reports = {}
    for split in task.splits:
        reports[split], found = evaluate(config, task, program, params, split)
        if jax.process_index() == 0:
            task.write(workdir, split, found)
    return reports


def goodness(report: dict[str, float], best: str) -> float:
    """The number named `best`, turned so that higher is better: losses are not."""
    return -report[best] if best.endswith("loss") else report[best]


def start_from(init_from: str | None, program: Program, task: Any) -> TrainState:
    """A new state: drawn, but for the parameters that `init_from` holds."""
    given = task.given(init_from) if init_from else {}
    check_given(given, program.state, init_from)
    return program.init(given)


def restore(
    checkpoints: Checkpoints, program: Program, config: TrainConfig, task: Any
) -> Restored | None:
    """The newest good checkpoint of this very run, or None for a new run.

    Raises:
      ValueError: where it is of other data, another tokenizer or config, unless
        `config.resume` is "changed"; or with "strict", where the newest is damaged.
    """
    meta = checkpoints.newest_meta()
    if meta and config.resume != "changed":
        now = record.describe(config, task, meta["step"])
        meta = {k: v for k, v in meta.items() if k not in ("window", "patience")}
        record.refuse_changes(meta, now, str(checkpoints.directory))
    found = checkpoints.restore(program.state)
    if found is None:
        return None
    if found.skipped and config.resume == "strict":
        raise ValueError("\n".join(found.skipped))
    ended = Patience(config.patience, found.meta["patience"]).exhausted
    ended = ended or found.step == config.num_steps
    complete = "this run is complete" if ended else "resumes"
    print("\n".join([*found.skipped, f"{complete}: step {found.step} is saved"]))
    return found
