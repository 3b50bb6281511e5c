"""The training loop, top to bottom."""

import dataclasses
import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import jax
from jax.sharding import Mesh

from bert_jax import files
from bert_jax.data import pipeline
from bert_jax.training import hosts, sharding
from bert_jax.training.checkpoints import Checkpoints
from bert_jax.training.config import TrainConfig, flat, resolve
from bert_jax.training.evaluation import evaluate, score_of
from bert_jax.training.logs import MetricsWriter, ProgressBar, Throughput, train_report
from bert_jax.training.memory import explain_out_of_memory
from bert_jax.training.optimizers import learning_rate
from bert_jax.training.program import Program
from bert_jax.training.resume import (
    LoopState,
    is_finished,
    locked,
    metadata,
    open_workdir,
    restore,
    start,
    write_config,
    write_finished,
)
from bert_jax.training.signals import Interrupted, StopSignals, end
from bert_jax.training.task import Batch, Params, SavedModel, Task

# Rows of a batch that an error names.
NAMED_ROWS = 8


@dataclasses.dataclass(frozen=True)
class Run:
    """A finished run.

    Attributes:
      task: with its rows.
      workdir: holds config.json, metrics.jsonl, tensorboard/, checkpoints/<step>/,
        model/, which transformers loads too, scores.json and predictions/.
      step: whose parameters the models have.
      models: by the directory each is saved to, "model" among them; {} for a run
        that was complete before and has kept no checkpoints.
      scores: by split and name.
      score: the one that decides which run is best; higher is better.
    """

    task: Task
    workdir: Path
    step: int
    models: Mapping[str, SavedModel]
    scores: Mapping[str, Mapping[str, float]]
    score: float


def train(config: TrainConfig, workdir: str | Path, *, announce: bool = True) -> Run:
    """Trains as `config` describes and writes `workdir`; called again, it resumes.

    Args:
      config, workdir: of the run.
      announce: True names the parts of the model that start at random; the later seeds
        of a config need not repeat them.

    Raises:
      ValueError: for anything wrong with the config, the data or the directory, before
        anything compiles.
      SystemExit: after a signal, when the state is saved; in a notebook it is a
        KeyboardInterrupt.
    """
    with StopSignals() as signals:
        signals.preparing = True
        # Check: config, devices, directory.
        config = resolve(config)
        mesh = sharding.make_mesh(config.model_parallel)
        sharding.check_batch(config.batch_size, config.accumulation, mesh)
        workdir = open_workdir(workdir, config)
        with locked(workdir):
            return train_in(workdir, config, mesh, signals, announce)


def train_in(
    workdir: Path,
    config: TrainConfig,
    mesh: Mesh,
    signals: StopSignals,
    announce: bool,
) -> Run:
    """Trains in a directory that belongs to this run."""
    # Data: opened, or made by process 0.
    task = hosts.process_zero_first(
        lambda: config.task.prepare(workdir, config.encoder, config.seed)
    )

    # Program: nothing compiles before the first step.
    program = Program(config, task, mesh)
    rate = jax.jit(learning_rate(config.optimizer, config.num_steps))
    if is_finished(workdir, config, task):
        return finished_run(task, workdir)
    write_config(workdir, config)

    with (
        Checkpoints(workdir / "checkpoints", keep=config.keep) as checkpoints,
        MetricsWriter(workdir, flat(config)) as metrics,
        hosts.exit_if_peer_lost(),
        explain_out_of_memory(config, program),
    ):
        # Restore: the newest good checkpoint, or a new state.
        signals.preparing, signals.expendable = False, True  # nothing to save yet
        state, loop = restore(checkpoints, program, config, task) or (
            start(config, program, task, announce),
            LoopState(),
        )
        metrics.truncate_after(loop.step, evaluated=loop.evaluated)
        speed = Throughput()

        def evaluate_now(params: Params) -> float | None:
            """The score of the held-out rows; None where a signal interrupts it."""
            speed.pause()
            loop.evaluated = False
            try:
                report, _ = evaluate(
                    config, task, program, params, "eval", signals.until
                )
            except Interrupted:
                return None
            metrics.write(loop.step, "eval", report)
            scores = ", ".join(f"{name} {x:.4g}" for name, x in report.items())
            bar.note(f"held out, step {loop.step}: {scores}")
            score = score_of(report, task.best_metric)
            loop.add_score(score)
            loop.evaluated = True
            return score

        # Steps: update, log, evaluate, save.
        with ProgressBar(config.num_steps, loop.step) as bar:
            if not loop.evaluated:
                checkpoints.add_score(loop.step, evaluate_now(state.params))
                stop(signals.poll(), loop)
            for batch in speed.waiting(batches(config, task, program, loop)):
                with explain_out_of_memory(config, program, batch):
                    state, totals = program.train_step(state, batch)
                    speed.add(totals)
                    loop.add_step(totals, config.batch_size)
                signals.expendable = False
                if loop.diverged:
                    raise ValueError(divergence(config, task, loop))
                bar.update()
                checkpoints.check()
                is_last, score = loop.step == config.num_steps, None
                if is_last or loop.step % config.log_every == 0:
                    speed.pause()
                    report = {"learning_rate": float(rate(loop.step - 1))}
                    report |= train_report(task, loop.take_totals(), speed.take())
                    metrics.write(loop.step, "train", report)
                    bar.report(
                        loop.step, report["loss"], report.get("tokens_per_second")
                    )
                if is_last or loop.step % config.eval_every == 0:
                    score = evaluate_now(state.params)
                signal, is_last = signals.poll(), loop.ended(config)
                if is_last or signal or loop.step % config.checkpoint_every == 0:
                    speed.pause()
                    meta = metadata(config, task, loop)
                    checkpoints.save(loop.step, state, meta, score=score)
                stop(signal, loop)
                if is_last:
                    break

        # Export: the last or the best parameters, scores, predictions.
        signals.expendable = False
        if config.export == "best" and (
            best := checkpoints.restore_best(program.state)
        ):
            loop.step, state = best.step, best.state
        step, params = loop.step, state.params
        del state  # nothing needs the optimizer's arrays any more
        try:
            run = export(config, task, program, params, step, workdir, signals)
        except Interrupted:
            end(
                f"{signals.poll()}: stopped before all was predicted; step {step} is "
                "saved"
            )
    if not config.keep_checkpoints:
        drop_checkpoints(workdir, config, task)
    return run


def batches(
    config: TrainConfig, task: Task, program: Program, loop: LoopState
) -> Iterator[Batch]:
    """The rest of the training batches on the devices, two ahead."""
    if loop.ended(config):
        return iter(())
    rows = pipeline.batches(
        task.rows["train"],
        batch_size=config.batch_size,
        seed=config.seed,
        start=loop.examples,
        stop=last_example(config, loop),
        share=program.process_rows(config.batch_size),
    )
    return sharding.prefetch(rows, program.place)


def last_example(config: TrainConfig, loop: LoopState) -> int:
    """The number of examples seen at the end; a resumed run may change batch_size."""
    return loop.examples + (config.num_steps - loop.step) * config.batch_size


def stop(signal: str | None, loop: LoopState) -> None:
    """Ends the run after a signal; the last save completes on the way out."""
    if signal:
        end(f"{signal}: stopped at step {loop.step}, saved")


def divergence(config: TrainConfig, task: Task, loop: LoopState) -> str:
    """Text on the steps that were not finite, with the rows of the first of them."""
    first, last = loop.not_finite[0], loop.not_finite[-1]
    before = loop.examples - (loop.step - first + 1) * config.batch_size
    _, rows = pipeline.examples_and_rows(
        task.rows["train"],
        config.batch_size,
        config.seed,
        before,
        last_example(config, loop),
    )
    named = ", ".join(map(str, sorted(rows)[:NAMED_ROWS]))
    more = f" and {len(rows) - NAMED_ROWS} more" if len(rows) > NAMED_ROWS else ""
    return (
        f"loss or gradients of steps {first} to {last} are not finite; all were "
        f"skipped, and the newest checkpoint is intact\nstep {first} held the rows "
        f"{named}{more} of the training data\nlook at them, or lower "
        f"optimizer.learning_rate={config.optimizer.learning_rate}"
    )


def export(
    config: TrainConfig,
    task: Task,
    program: Program,
    params: Params,
    step: int,
    workdir: Path,
    signals: StopSignals,
) -> Run:
    """Scores and predicts every split but "train", and writes the finished models."""
    # First, because a score may set a part of the model, such as a threshold.
    scores = {}
    for split in task.rows:
        if split == "train":
            continue
        scores[split], predictions = evaluate(
            config, task, program, params, split, signals.until
        )
        if jax.process_index() == 0:
            task.write_predictions(workdir, split, predictions)
    score = score_of(scores["eval"], task.best_metric)
    history = {"config": flat(config), "step": step, "scores": scores}
    models = task.to_models(program.model, program.gather(params), history)
    if jax.process_index() == 0:
        for name, model in models.items():
            model.save(workdir / name)
        report = {"seed": config.seed, "step": step, "scores": scores}
        files.write_json(workdir / "scores.json", report | {"goodness": score})
    hosts.all_agree(True)  # until process 0 has written
    return Run(task, workdir, step, models, scores, score)


def drop_checkpoints(workdir: Path, config: TrainConfig, task: Task) -> None:
    """Deletes the checkpoints of a complete run; `finished_run` answers for it then."""
    if jax.process_index() == 0:
        write_finished(workdir, config, task)
        shutil.rmtree(workdir / "checkpoints")
    hosts.all_agree(True)  # until process 0 has deleted them


def finished_run(task: Task, workdir: Path) -> Run:
    """A run that was complete before, from its files; its models are on disk only."""
    print("this run is complete")
    if jax.process_index() == 0:  # if a kill came in between
        shutil.rmtree(workdir / "checkpoints", ignore_errors=True)
    report = json.loads((workdir / "scores.json").read_text())
    step, scores = report["step"], report["scores"]
    return Run(task, workdir, step, {}, scores, report["goodness"])
