"""Checkpoints that are whole, verified and few; every Orbax call is in this file.

`<directory>/<step>/` holds the arrays of the training state, and a JSON record with
the caller's metadata, the shape, type and digest of every leaf, and a checksum of the
record. Orbax does not notice a flipped bit, so `restore` computes the digests again
and compares them.
"""

import contextlib
import gc
import logging
import math
import os
import sys
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Any, NamedTuple

import jax
import orbax.checkpoint as ocp

from bert_jax import digests, files
from bert_jax.training import hosts


class Restored(NamedTuple):
    """A verified state, the `meta` it was saved with, and the skipped steps."""

    step: int
    state: Any
    meta: dict[str, Any]
    # One line for each newer step that could not be used.
    skipped: list[str]


class Checkpoints:
    """The checkpoints of a run; use it as a context or call `close`.

    Args:
      directory: made if absent.
      keep: newest steps to keep. The step with the best score and the last one that
        was restored are kept beside them.
    """

    def __init__(self, directory: str | os.PathLike, *, keep: int = 2):
        # Orbax takes a relative path and fails later, in a thread.
        directory = files.local_path(directory).absolute()
        self.keep = keep
        self._verified: int | None = None
        self._damaged: list[int] = []
        self._saving: int | None = None
        options = ocp.CheckpointManagerOptions(
            cleanup_tmp_directories=True, preservation_policy=_Policy(self)
        )
        with contextlib.ExitStack() as quiet:
            quiet.enter_context(quiet_orbax())
            self._manager = ocp.CheckpointManager(directory, options=options)
            self.directory = self._manager.directory
            self._scores = self._read_scores()
            self._until_closed = quiet.pop_all()

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def steps(self) -> list[int]:
        """Steps on disk or being written, in order; some may be damaged."""
        return sorted(self._manager.all_steps())

    @property
    def best_step(self) -> int | None:
        """The step with the highest score, the earliest of equals."""
        return max(self._scores, key=self._scores.__getitem__, default=None)

    def save(
        self,
        step: int,
        state: Any,
        meta: dict[str, Any],
        *,
        score: float | None = None,
    ) -> None:
        """Starts to write `state`; the caller may donate it as soon as this returns.

        Args:
          step: updates done.
          state: tree of arrays.
          meta: anything JSON can hold; comes back from `restore`.
          score: higher is better; None or not finite leaves the step out of the
            choice of the best.

        Raises:
          OSError: when the previous save has failed.
        """
        self.wait()
        self._set_damaged_aside()
        self.add_score(step, score)
        record = {"step": step, "scores": self._scores_for_json(), "meta": meta}
        record["leaves"] = digests.leaves(state)
        args = ocp.args.Composite(
            state=ocp.args.StandardSave(state),
            record=ocp.args.JsonSave(digests.sign(record)),
        )
        with self._failure_as_one_line(step):
            self._manager.save(step, args=args, force=True)
        self._saving = step

    def add_score(self, step: int, score: float | None) -> None:
        """Records the score of a step on disk; the next save writes it."""
        if score is not None and math.isfinite(score):
            self._scores[step] = score

    def check(self) -> None:
        """Raises OSError if a save has failed by now; cheap enough for every step."""
        if self._saving is not None and not self._manager.is_saving_in_progress():
            self.wait()

    def wait(self) -> None:
        """Returns when nothing is being written; raises OSError if a save failed."""
        step, self._saving = self._saving, None
        with self._failure_as_one_line(step):
            self._manager.wait_until_finished()

    def close(self) -> None:
        """Waits for the last save and lets go of Orbax's threads."""
        with self._until_closed:
            try:
                self.wait()
            finally:
                self._manager.close()

    def newest_meta(self) -> dict[str, Any] | None:
        """The `meta` of the newest step whose record is whole; reads no arrays."""
        for step in reversed(self._steps_for_all()):
            record, fault = self._read_record(step)
            if fault is None:  # else `restore` reports it.
                return record["meta"]
        return None

    def restore(self, abstract_state: Any) -> Restored | None:
        """The newest state that is whole; None where no checkpoint was ever made.

        Args:
          abstract_state: tree of `jax.ShapeDtypeStruct` with shardings, which need
            not be those it was saved from.

        Raises:
          ValueError: when a checkpoint holds other arrays than `abstract_state`, or
            when there are checkpoints and all are damaged.
        """
        skipped: list[str] = []
        for step in reversed(self._steps_for_all()):
            state, meta, fault = self._try(step, abstract_state)
            if fault is None:
                self._verified = step
                return Restored(step, state, meta, skipped)
            skipped.append(f"checkpoint {step} is damaged: {fault}")
            self._damaged.append(step)
        if skipped:
            raise ValueError(
                f"all checkpoints in {self.directory} are damaged; move them away to "
                f"start from the beginning\n{skipped[0]}"
            )
        return None

    def restore_best(self, abstract_state: Any) -> Restored | None:
        """The state with the best score; None where it is damaged or none has one."""
        self.wait()
        step = self.best_step
        if step is None:
            return None
        state, meta, fault = self._try(step, abstract_state)
        return Restored(step, state, meta, []) if fault is None else None

    @contextlib.contextmanager
    def _failure_as_one_line(self, step):
        try:
            yield
        except Exception as error:
            self._scores.pop(step, None)
            _end_waiting_threads()
            raise OSError(
                f"checkpoint {step} could not be written to {self.directory} "
                f"({_one_line(error)}); older checkpoints are intact"
            ) from None

    def _try(self, step, abstract_state):
        """(state, meta, None), or (None, None, what is wrong); the same everywhere."""
        record, fault = self._read_record(step)
        if fault:
            return None, None, fault
        digests.check_fit(step, record["leaves"], abstract_state)
        state, fault = _read(lambda: self._arrays(step, abstract_state), "its arrays")
        if fault:
            return None, None, fault
        # Only now: all processes compute the digests together.
        changed = digests.differences(record["leaves"], digests.leaves(state))
        if changed:
            return None, None, f"{digests.some(changed)} changed since it was saved"
        return state, record["meta"], None

    def _read_record(self, step):
        """(record, None), or (None, what is wrong); all processes agree which."""
        return _read(lambda: self._record(step), "its record")

    # Not by the manager: it lets all processes wait for each other after it has read,
    # and one that cannot read would never come.

    def _record(self, step):
        folder = self.directory / str(step) / "record"
        record = ocp.JsonCheckpointHandler().restore(folder)
        if digests.sign(record)["crc32"] != record.get("crc32"):
            raise ValueError("its checksum is wrong")
        if record["step"] != step:
            raise ValueError(f"it is of step {record['step']}")
        return record

    def _arrays(self, step, abstract_state):
        folder = self.directory / str(step) / "state"
        handler = ocp.StandardCheckpointHandler()
        try:
            return handler.restore(
                folder, args=ocp.args.StandardRestore(abstract_state)
            )
        finally:
            handler.close()

    def _steps_for_all(self):
        """The steps as process 0 sees them: a disk may show others elsewhere."""
        return hosts.process_zero_numbers(self.steps)

    def _scores_for_json(self):
        return {str(step): score for step, score in self._scores.items()}

    def _read_scores(self):
        scores: dict[str, float] = {}
        steps = self._steps_for_all()
        for step in steps:
            record, fault = self._read_record(step)
            if fault is None:  # else `restore` reports it.
                scores |= record["scores"]
        return {int(k): v for k, v in scores.items() if int(k) in steps}

    def _set_damaged_aside(self):
        """Renames the steps that `restore` skipped, so that they can be saved again."""
        if not self._damaged:
            return
        if jax.process_index() == 0:
            for step in self._damaged:
                _rename_to_free_name(self.directory / str(step))
        hosts.all_agree(True)
        for step in self._damaged:
            self._scores.pop(step, None)
        self._damaged = []
        self._manager.reload()


class _Policy(ocp.checkpoint_managers.PreservationPolicy):
    """Preserves the newest steps, the best one and the last one restored."""

    def __init__(self, checkpoints):
        self.checkpoints = checkpoints

    def should_preserve(self, checkpoints, *, context):
        owner, steps = self.checkpoints, [c.step for c in checkpoints]
        wanted = {*sorted(steps)[-owner.keep :], owner.best_step, owner._verified}
        return [step in wanted for step in steps]


def _read(read, what):
    """(result, None), or (None, what is wrong); all processes agree which.

    `read` waits for no other process.
    """
    result = fault = None
    try:
        result = read()
    except Exception as error:
        fault = f"{what} cannot be read ({_one_line(error)})"
    if not hosts.all_agree(fault is None):
        return None, fault or f"{what} cannot be read by another process"
    return result, None


def _end_waiting_threads():
    """Ends threads of Orbax that wait for a part of a save that has failed.

    The process could not end for the five minutes that they wait.
    """
    if jax.process_count() > 1:
        return  # these processes end without waiting for threads
    # In some releases there is no such thing.
    with contextlib.suppress(ImportError, AttributeError):
        from orbax.checkpoint._src.futures import future

        for thread in threading.enumerate():
            if isinstance(thread, future._SignalingThread):
                thread.cancel()
                signals, operation = thread._receive_signals, thread._operation_id
                future.set_signals(signals, operation_id=operation)


def _rename_to_free_name(path):
    number = 0
    while (aside := path.parent / f"{path.name}.damaged-{number}").exists():
        number += 1
    path.rename(aside)


def _one_line(error):
    """The first cause of an error, without TensorStore's description of itself."""
    while error.__cause__ is not None:
        error = error.__cause__
    text = " ".join(str(error).split(" [")[0].split())
    return f"{type(error).__name__}: {text}"[:200]


@contextlib.contextmanager
def quiet_orbax() -> Iterator[None]:
    """Drops log lines of Orbax, and output of its abandoned coroutines, while it lasts.

    For callers that catch Orbax's exceptions and report them in one line.
    """
    loggers = [logging.getLogger(name) for name in ("absl", "asyncio")]
    previous = sys.unraisablehook

    def hook(unraisable):
        if not _is_orbax(unraisable):
            previous(unraisable)

    for logger in loggers:
        logger.addFilter(_not_from_orbax)
    sys.unraisablehook = hook
    try:
        yield
    finally:
        gc.collect()  # Abandoned coroutines complain when they are collected.
        sys.unraisablehook = previous
        for logger in loggers:
            logger.removeFilter(_not_from_orbax)


def _not_from_orbax(record):
    text = f"{record.pathname} {record.getMessage()}".lower()
    return not any(name in text for name in ("orbax", "tensorstore", "ocdbt"))


def _is_orbax(unraisable):
    # TensorStore's threads call back into the event loop that Orbax has closed.
    late = str(unraisable.exc_value) == "Event loop is closed"
    code = getattr(unraisable.object, "cr_code", None)
    return late or (code is not None and "orbax" in code.co_filename)
