"""State and identity of a run in its directory: saving, checking and restoring them.

`config.json` in the work directory and the metadata of each checkpoint identify the
run. `LoopState` in this metadata and the arrays of `TrainState` are all that a run
needs to continue exactly; `checkpoints` verifies both.
"""

import collections
import contextlib
import dataclasses
import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from bert_jax import files
from bert_jax.data import lock
from bert_jax.training import hosts
from bert_jax.training.checkpoints import Checkpoints
from bert_jax.training.config import HARMLESS, TrainConfig, flat
from bert_jax.training.program import Program, check_pretrained
from bert_jax.training.step import TrainState, add_totals
from bert_jax.training.task import Params, Task, Totals

# So many steps in a row that are not finite end the run.
NOT_FINITE_LIMIT = 3
# What a run and its preparation make in its directory, without the endings of names;
# hidden files; and the logs that a shell or a scheduler writes there.
MADE_BY_RUN = {
    *("cache", "checkpoints", "config", "confusion", "curves", "data", "finished"),
    *("generator", "metrics", "model", "predictions", "scores", "start", "tensorboard"),
    *("tokenizer", "", "log", "lost+found"),
}
LOGS = {"log", "out", "err"}
# The flags of so many newest steps are not read yet: reading one would wait for it.
UNREAD = 2


@dataclasses.dataclass
class LoopState:
    """Everything that changes from step to step beside the arrays of `TrainState`.

    The metadata of a checkpoint holds it whole.

    Attributes:
      step: updates done.
      examples: training examples seen, which is the position in the data.
      totals: sums and counts of the steps since the last log line; None after it.
      evaluated: False where the evaluation of `step` was interrupted and is due again.
      best_score: the best of all evaluations; higher is better.
      evaluations_since_best: evaluations in a row that were no better.
      not_finite: the newest steps in a row whose loss or gradients were not finite.
      unread: (step, flag) of the steps after these, whose flags are not read yet.
    """

    step: int = 0
    examples: int = 0
    totals: Totals | None = None
    evaluated: bool = True
    best_score: float | None = None
    evaluations_since_best: int = 0
    not_finite: list[int] = dataclasses.field(default_factory=list)
    unread: collections.deque[tuple[int, Any]] = dataclasses.field(
        default_factory=collections.deque
    )

    def add_step(self, totals: Totals, batch_size: int) -> None:
        """Counts one update with its totals, without waiting for it."""
        self.step += 1
        self.examples += batch_size
        self.totals = add_totals(self.totals, totals)
        self.unread.append((self.step, totals["not_finite"][0]))
        if len(self.unread) > UNREAD:
            step, flag = self.unread.popleft()
            self.not_finite = [*self.not_finite, step] if float(flag) else []

    def add_score(self, score: float) -> None:
        """Counts one evaluation; higher is better."""
        if self.best_score is None or score > self.best_score:
            self.best_score, self.evaluations_since_best = score, 0
        else:
            self.evaluations_since_best += 1

    def take_totals(self) -> Totals:
        """The totals as NumPy numbers; the next step begins new ones."""
        totals, self.totals = jax.device_get(self.totals), None
        return totals

    @property
    def diverged(self) -> bool:
        """True after too many steps in a row that were not finite."""
        return len(self.not_finite) >= NOT_FINITE_LIMIT

    def ended(self, config: TrainConfig) -> bool:
        """True at the last step, and where the run has lost its patience."""
        out_of_patience = 0 < config.patience <= self.evaluations_since_best
        return out_of_patience or self.step == config.num_steps

    def to_json(self) -> dict[str, Any]:
        """All fields as JSON can hold them."""
        totals = jax.device_get(self.totals or {})
        return vars(self) | {
            "totals": {name: [float(x) for x in pair] for name, pair in totals.items()},
            "unread": [[step, float(flag)] for step, flag in self.unread],
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "LoopState":
        """The state that `to_json` gave."""
        totals = {k: (np.float32(s), np.float32(n)) for k, (s, n) in
                  fields["totals"].items()}  # fmt: skip
        unread = collections.deque((step, flag) for step, flag in fields["unread"])
        return cls(**{**fields, "totals": totals or None, "unread": unread})


def open_workdir(workdir: str | Path, config: TrainConfig) -> Path:
    """The absolute path of `workdir`, which is made unless it is there.

    Raises ValueError where it cannot be written, or holds a run of another config.
    """
    workdir = files.local_path(workdir).absolute()
    check_workdir(workdir)
    try:
        workdir.mkdir(parents=True, exist_ok=True)
        probe = workdir / f".probe-{jax.process_index()}-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise ValueError(
            f"workdir={str(workdir)!r} cannot be written ({error.strerror}); "
            "choose another workdir or fix its permissions"
        ) from None
    file = workdir / "config.json"
    begun = any(path.name.isdigit() for path in workdir.glob("checkpoints/*"))
    # A run that failed before it saved anything may begin again with other settings.
    if begun and file.exists() and config.resume != "changed":
        with files.readable_errors(file, "delete it to continue this run"):
            check_unchanged(json.loads(file.read_text()), flat(config), str(workdir))
    return workdir


def check_workdir(workdir: str | Path) -> None:
    """Raises ValueError for a file, and for a directory with files of other origin."""
    workdir = files.local_path(workdir).absolute()
    if workdir.exists() and not workdir.is_dir():
        raise ValueError(f"workdir={str(workdir)!r} is a file; choose another workdir")
    if not workdir.exists() or _is_config_of_run(workdir / "config.json"):
        return
    foreign = [x.name for x in workdir.iterdir() if not _is_made_by_run(x.name)]
    if foreign:
        raise ValueError(
            f"workdir={str(workdir)!r} is not empty and no run made it: it has "
            f"{sorted(foreign)[0]!r}; choose another workdir"
        )


def _is_made_by_run(name: str) -> bool:
    stem, _, ending = name.partition(".")
    is_hidden = not stem  # such as the lock
    return (
        is_hidden or stem in MADE_BY_RUN or ending in LOGS or stem.startswith("seed_")
    )


def _is_config_of_run(file: Path) -> bool:
    # A model's directory has a config.json, too.
    try:
        content = json.loads(file.read_text())
    except OSError:
        return False
    except ValueError:  # damaged; the comparison of configs says so
        return True
    return isinstance(content, dict) and "num_steps" in content


@contextlib.contextmanager
def locked(workdir: Path) -> Iterator[None]:
    """Keeps other runs out of a work directory; process 0 has the lock for them all.

    Raises ValueError, in all processes, where another run has it.
    """
    with contextlib.ExitStack() as stack:

        def take() -> None:
            if jax.process_index() == 0:
                stack.enter_context(lock.locked(workdir))

        hosts.process_zero_first(take)
        yield


def write_config(workdir: Path, config: TrainConfig) -> None:
    """Writes config.json, once every check of the config and the data has passed."""
    if jax.process_index() == 0:
        files.write_json(workdir / "config.json", flat(config))
    hosts.check_shared(workdir)


def metadata(config: TrainConfig, task: Task, loop: LoopState) -> dict[str, Any]:
    """The metadata of a checkpoint: the identity of the run, and its loop state."""
    return {**identity(config, task), "loop": loop.to_json()}


def identity(config: TrainConfig, task: Task) -> dict[str, Any]:
    """Config, data, tokenizer and teacher: whatever makes two runs different ones."""
    return {"config": flat(config), **task.fingerprint}


def check_unchanged(old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> None:
    """Raises ValueError with the fields that differ between two runs."""
    files.check_unchanged(
        old,
        new,
        f"{path} belongs to another run",
        "choose another workdir, or accept the changes with resume='changed'",
        harmless=HARMLESS,
    )


def write_finished(workdir: Path, config: TrainConfig, task: Task) -> None:
    """Writes the identity of a complete run whose checkpoints are about to go."""
    files.write_json(workdir / "finished.json", identity(config, task))


def is_finished(workdir: Path, config: TrainConfig, task: Task) -> bool:
    """True for a complete run without checkpoints.

    Raises ValueError if it is another one than this.
    """
    file = workdir / "finished.json"
    if not hosts.all_agree(file.exists()):
        return False
    with files.readable_errors(file, "choose another workdir"):
        files.check_unchanged(
            json.loads(file.read_text()),
            identity(config, task),
            f"{workdir} holds another run, which is complete",
            "choose another workdir (keep_checkpoints=true lets a run be continued)",
            harmless=set(HARMLESS) - {"export"},
        )
    return True


def start(
    config: TrainConfig, program: Program, task: Task, announce: bool
) -> TrainState:
    """A new training state, with the parameters that `config.init_from` provides.

    With `announce`, a line names the parts that it does not provide.
    """
    params = task.pretrained_params(config.init_from) if config.init_from else {}
    check_pretrained(params, program.state, str(config.init_from))
    if params and announce and jax.process_index() == 0:
        print(random_parts(program.state.params, params), end="", flush=True)
    return program.init(params)


def random_parts(shapes: Params, params: Params) -> str:
    """A line that names the parts that a start lacks; "" if it lacks none."""
    sizes = {
        name: sum(math.prod(x.shape) for x in jax.tree.leaves(shapes[name]))
        for name in sorted(shapes.keys() - params.keys())
    }
    if not sizes:
        return ""
    parts = ", ".join(f"{name} ({size:,} parameters)" for name, size in sizes.items())
    return f"starts with random values: {parts}\n"


def restore(
    checkpoints: Checkpoints, program: Program, config: TrainConfig, task: Task
) -> tuple[TrainState, LoopState] | None:
    """The state in the newest good checkpoint of this run; None for a new run.

    Raises:
      ValueError: where it is of other data, another tokenizer or config, unless
        `config.resume` is "changed"; or with "strict", where the newest is damaged.
    """
    newest = checkpoints.newest_meta()
    if newest and config.resume != "changed":
        old = {name: value for name, value in newest.items() if name != "loop"}
        check_unchanged(old, identity(config, task), str(checkpoints.directory))
    restored = checkpoints.restore(program.state)
    if restored is None:
        return None
    if restored.skipped and config.resume == "strict":
        raise ValueError("\n".join(restored.skipped))
    loop = LoopState.from_json(restored.meta["loop"])
    status = "this run is complete" if loop.ended(config) else "resumes"
    print("\n".join([*restored.skipped, f"{status}: step {loop.step} is saved"]))
    return restored.state, loop
