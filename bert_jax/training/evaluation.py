"""What a run scores and predicts, on the way and at its end."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from bert_jax import files
from bert_jax.data import pipeline
from bert_jax.training import hosts
from bert_jax.training.config import TrainConfig, flat
from bert_jax.training.program import Program
from bert_jax.views import plots

# Passes batches on, or raises in between: `StopSignals.until`.
Gate = Callable[[Iterable], Iterable]


def evaluate(
    config: TrainConfig,
    task: Any,
    program: Program,
    params: Any,
    split: str,
    gate: Gate,
) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """Averages and scores on all rows of a split, and predictions `[N, ...]`.

    Rows to predict that have no labels have no scores.
    """
    rows = pipeline.eval_batches(
        task.rows[split],
        batch_size=config.batch_size,
        process_index=jax.process_index(),
        process_count=jax.process_count(),
    )
    totals, predictions = program.evaluate(params, gate(rows))
    return task.report(split, totals, predictions), predictions


def finish(
    config: TrainConfig,
    task: Any,
    program: Program,
    params: Any,
    step: int,
    workdir: Path,
    gate: Gate,
    kept: bool,
) -> Any:
    """Writes the model of `step`, what it predicts and how the run went.

    What to type next is said where `workdir` is kept.
    """
    # First, for scores may find what is part of the model, such as a threshold.
    scores = {}
    for split in [split for split in task.rows if split != "train"]:
        scores[split], found = evaluate(config, task, program, params, split, gate)
        if jax.process_index() == 0:
            task.write_predictions(workdir, split, found)
    history = {"config": flat(config), "step": step, "scores": scores}
    params = program.gather(params)
    models = task.to_models(program.model, params, history)
    model = models["model"]
    if jax.process_index() == 0:
        for name, each in models.items():
            each.save(workdir / name)
        report = {"seed": config.seed, "step": step, "scores": scores}
        report["goodness"] = goodness(scores["eval"], task.best_metric)
        files.write_json(workdir / "scores.json", report)
        plots.curves(workdir)
        print(task.demo(model, workdir))
        if kept:
            print(task.next_steps(workdir))
    hosts.agree(True)  # until process 0 has written
    return model


def goodness(report: dict[str, float], best: str) -> float:
    """The number named `best`, turned so that higher is better: losses are not."""
    return -report[best] if best.endswith("loss") else report[best]
