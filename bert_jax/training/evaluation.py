"""Scores and predictions on all rows of a split."""

from collections.abc import Callable, Iterable, Mapping

import jax

from bert_jax.data import pipeline
from bert_jax.data.progress import Bar
from bert_jax.training.config import TrainConfig
from bert_jax.training.program import Program
from bert_jax.training.task import Params, Predictions, Task

# Passes batches on, or raises between two of them: `StopSignals.until`.
Gate = Callable[[Iterable], Iterable]


def evaluate(
    config: TrainConfig,
    task: Task,
    program: Program,
    params: Params,
    split: str,
    gate: Gate,
) -> tuple[dict[str, float], Predictions]:
    """The task's report on all rows of a split, and predictions `[N, ...]`."""
    rows = pipeline.eval_batches(
        task.rows[split],
        batch_size=config.batch_size,
        share=program.process_rows(config.batch_size),
    )
    total = -(-len(task.rows[split]) // config.batch_size)
    shown = jax.process_index() == 0
    with Bar(total, "batches", split, shown=shown, leave=False) as bar:
        totals, predictions = program.evaluate(params, bar.over(gate(rows)))
    return task.report(split, totals, predictions), predictions


def score_of(report: Mapping[str, float], metric: str) -> float:
    """The number of a metric, negated for a loss, so that higher is better."""
    return -report[metric] if metric.endswith("loss") else report[metric]
