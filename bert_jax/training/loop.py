"""The training loop, top to bottom."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax

from bert_jax.data import pipeline
from bert_jax.training import hosts, memory, run_directory, sharding
from bert_jax.training.checkpoints import Checkpoints, Restored
from bert_jax.training.config import TrainConfig, resolve
from bert_jax.training.evaluation import evaluate, finish, goodness
from bert_jax.training.guard import Guard
from bert_jax.training.logs import MetricsWriter, ProgressBar
from bert_jax.training.optimizers import learning_rate
from bert_jax.training.patience import Patience
from bert_jax.training.program import Program, check_given, make_program
from bert_jax.training.signals import Interrupted, StopSignals
from bert_jax.training.step import TrainState
from bert_jax.training.window import Window

# What a checkpoint says that is not of the run but of the loop at its step.
OF_THE_LOOP = ("window", "patience", "evaluated")


def train(config: TrainConfig, workdir: str | Path, *, kept: bool = True) -> Any:
    """Trains as `config` says and returns a `Model`; called again, it resumes.

    Writes to `workdir`: config.json, metrics.jsonl, tensorboard/, checkpoints/<step>/,
    model/, which transformers loads too, scores.json, curves.png and predictions/. What
    to do with them is said at the end, unless they are not `kept`.

    Raises:
      ValueError: for anything wrong with the config, the data or the directory, before
        anything compiles.
      SystemExit: after SIGTERM or Ctrl-C, when the state is saved.
    """
    # What to do; all of it is checked before anything compiles.
    config = resolve(config)
    mesh = sharding.make_mesh(config.model_parallel)
    sharding.check_batch(config.batch_size, config.accumulation, mesh)
    workdir = run_directory.claim(workdir, config)
    task = hosts.in_turn(
        lambda: config.task.prepare(workdir, config.encoder, config.seed)
    )
    program = make_program(config, task, mesh)
    run_directory.keep(workdir, config)

    with (
        Checkpoints(workdir / "checkpoints", keep=config.keep) as checkpoints,
        MetricsWriter(workdir) as metrics,
        StopSignals() as signals,
        hosts.together(),
        memory.explained(config, program),
    ):
        run = Run(config, task, program, checkpoints, metrics, signals)
        step, params = run.train()
        try:
            gate = signals.until
            return finish(config, task, program, params, step, workdir, gate, kept)
        except Interrupted:
            raise SystemExit(
                f"{signals.poll()}: stopped before all was predicted; step {step} is "
                "saved"
            ) from None


@dataclasses.dataclass
class Run:
    """A run in progress: its updates, and what happens between two of them."""

    config: TrainConfig
    task: Any
    program: Program
    checkpoints: Checkpoints
    metrics: MetricsWriter
    signals: StopSignals

    def train(self) -> tuple[int, Any]:
        """Goes on from the newest checkpoint to the end: the step and its parameters.

        With `config.export` "best" these are the best ones.
        """
        config, program = self.config, self.program
        self.signals.expendable = True  # until there is something to save
        found = restore(self.checkpoints, program, config, self.task)
        state = found.state if found else start_from(config, program, self.task)
        self.start = found.step if found else 0
        said = found.meta if found else {"examples": 0, "evaluated": True}
        self.seen = said["examples"]
        self.window = Window(self.averages, said.get("window"))
        self.patience = Patience(config.patience, said.get("patience"))
        self.guard = Guard()
        self.rate = jax.jit(learning_rate(config.optimizer, config.num_steps))
        self.metrics.truncate_after(self.start, evaluated=said["evaluated"])
        step = self.start
        with ProgressBar(config.num_steps, step) as self.bar:
            if not said["evaluated"]:
                self.checkpoints.add_score(step, self.evaluate(step, state.params))
                stop(self.signals.poll(), step)
            for step, batch in enumerate(self.batches(), self.start + 1):
                state = self.update(step, state, batch)
                if self.after(step, state):
                    break
        self.signals.expendable = False  # the model is written next
        if config.export == "best" and (
            best := self.checkpoints.restore_best(program.state)
        ):
            step, state = best.step, best.state
        return step, state.params

    def batches(self) -> Iterator:
        """Training batches on the devices, from the start on, two ahead."""
        config = self.config
        if self.patience.exhausted:
            return iter(())
        rows = pipeline.batches(
            self.task.rows["train"],
            batch_size=config.batch_size,
            seed=config.seed,
            start=self.seen,
            stop=self.examples(config.num_steps),
            process_index=jax.process_index(),
            process_count=jax.process_count(),
        )
        return self.window.received(sharding.prefetch(rows, self.program.place))

    def examples(self, step: int) -> int:
        """How many were seen when `step` was done; batches may have changed in size."""
        return self.seen + (step - self.start) * self.config.batch_size

    def update(self, step: int, state: TrainState, batch: Any) -> TrainState:
        """One update, and what it says of itself."""
        with memory.explained(self.config, self.program, batch):
            state, totals = self.program.train_step(state, batch)
            self.window.add(totals)
        self.signals.expendable = False
        self.guard.add(step, totals["not_finite"])
        if self.guard.exhausted:
            self.give_up()
        self.bar.advance()
        self.checkpoints.check()
        return state

    def after(self, step: int, state: TrainState) -> bool:
        """Logs, evaluates and saves if it is time; whether the run is over."""
        config = self.config
        ends = step == config.num_steps
        if ends or step % config.log_every == 0:
            report = {
                "learning_rate": float(self.rate(step - 1)),
                **self.window.report(),
            }
            self.metrics.write(step, "train", report)
            self.bar.report(step, report["loss"], report.get("tokens_per_second", 0))
        due = ends or step % config.eval_every == 0
        score = self.evaluate(step, state.params) if due else None
        stopped = self.signals.poll()
        ends = ends or self.patience.exhausted
        if ends or stopped or step % config.checkpoint_every == 0:
            self.window.pause()
            meta = run_directory.describe(config, self.task, step, self.examples(step))
            meta |= {"window": self.window.totals(), "patience": self.patience.state}
            meta["evaluated"] = score is not None or not due
            self.checkpoints.save(step, state, meta, score=score)
        stop(stopped, step)
        return ends

    def evaluate(self, step: int, params: Any) -> float | None:
        """Scores the held-out rows: how good they are, or None if a signal came."""
        self.window.pause()
        try:
            report, _ = evaluate(
                self.config,
                self.task,
                self.program,
                params,
                "eval",
                self.signals.until,
            )
        except Interrupted:
            return None
        self.metrics.write(step, "eval", report)
        scores = ", ".join(f"{k} {v:.4g}" for k, v in report.items())
        self.bar.note(f"held out, step {step}: {scores}")
        score = goodness(report, self.task.best_metric)
        self.patience.add(score)
        return score

    def averages(self, totals: Any) -> dict[str, float]:
        """Averages of training steps."""
        return self.task.report("train", totals, {})

    def give_up(self) -> None:
        """Raises ValueError with the rows of the first step that was not finite."""
        config, first = self.config, self.guard.first
        _, rows = pipeline.examples_and_rows(
            self.task.rows["train"],
            config.batch_size,
            config.seed,
            self.examples(first - 1),
            self.examples(config.num_steps),
        )
        raise ValueError(self.guard.explain(rows, config.optimizer.learning_rate))


def stop(signal: str | None, step: int) -> None:
    """Ends the run after a signal; what is to be saved is saved on the way out."""
    if signal:
        raise SystemExit(f"{signal}: stopped at step {step}, saved")


def start_from(config: TrainConfig, program: Program, task: Any) -> TrainState:
    """A new state: drawn, but for the parameters that `config.init_from` holds."""
    given = task.pretrained_params(config.init_from) if config.init_from else {}
    check_given(given, program.state, config.init_from)
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
        now = run_directory.describe(config, task, meta["step"], meta["examples"])
        said = {k: v for k, v in meta.items() if k not in OF_THE_LOOP}
        run_directory.refuse_changes(said, now, str(checkpoints.directory))
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
