"""Several processes as one run: they join, agree, and end together."""

import collections
import contextlib
import faulthandler
import os
import secrets
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

# Seconds without a sign of life after which a process counts as gone.
HEARTBEAT = 60
# Seconds in which a file of one process is seen by all.
SEEN_WITHIN = 60
# How many calls of `Largest` the answer lies behind, so that no step waits for it.
BEHIND = 2

T = TypeVar("T")


def join(
    coordinator_address: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
) -> None:
    """Joins the processes of a run; the first use of JAX.

    On a TPU pod, and under Slurm or Open MPI, JAX finds the arguments itself. Only
    process 0 prints, but for errors.

    Raises:
      ValueError: where the others cannot be found.
    """
    try:
        jax.distributed.initialize(
            coordinator_address,
            num_processes,
            process_id,
            heartbeat_timeout_seconds=HEARTBEAT,
        )
    except (ValueError, RuntimeError) as error:
        raise ValueError(
            f"the processes of the run could not be joined: {first_line(error)}\n"
            "name --coordinator_address=HOST:PORT, --num_processes and --process_id"
        ) from None
    # JAX's notifier of preemptions has taken SIGTERM; the loop has its own handler.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # JAX ends a process whose coordinator is gone with a message; stacks would hide it.
    faulthandler.disable()
    if process_id or jax.process_index():
        sys.stdout = open(os.devnull, "w")  # for as long as the process lives


def leave(message: str) -> NoReturn:
    """Ends this process with an error; with several, without waiting for the others.

    They notice that one is gone, in `HEARTBEAT` seconds at the latest.
    """
    if jax.process_count() == 1:
        sys.exit(message)
    number = f"process {jax.process_index()} of {jax.process_count()}"
    print(f"{message} ({number})", file=sys.stderr, flush=True)
    os._exit(1)


@contextlib.contextmanager
def exit_if_peer_lost() -> Iterator[None]:
    """Ends this process at once if another one is gone.

    Saves in an enclosing context would wait for the missing process.
    """
    try:
        yield
    except Exception as error:
        if message := lost(error):
            leave(message)
        raise


def lost(error: Exception) -> str | None:
    """A message if `error` shows that another process is gone; else None."""
    signs = ("Gloo", "coordination service", "heartbeat", "UNAVAILABLE", "DEADLINE_EX")
    if jax.process_count() == 1 or not any(sign in str(error) for sign in signs):
        return None
    return (
        f"another process of the run is gone ({first_line(error)})\n"
        "start all of them again with the same command: it continues from the newest "
        "checkpoint"
    )


def first_line(error: Exception) -> str:
    """The first line of an error."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:150]


def all_agree(yes: bool) -> bool:
    """True if all processes pass True; all must call it."""
    return bool(np.all(multihost_utils.process_allgather(np.array(yes))))


def process_zero_first(call: Callable[[], T]) -> T:
    """`call()` on process 0, and then on the others, which can use the files it made.

    An error of one process ends all of them: those that wait for it, too.

    Raises:
      ValueError: where `call` failed on another process.
    """
    if jax.process_count() == 1:
        return call()
    is_zero = jax.process_index() == 0
    results: list[T] = []
    for mine, who in ((is_zero, "process 0"), (not is_zero, "another process")):
        error: BaseException | None = None
        try:
            if mine:
                results.append(call())
        except BaseException as caught:  # whatever it is, the others wait below
            error = caught
        if not all_agree(error is None):
            raise error or ValueError(f"{who} has stopped; its message says why")
    return results[0]


def process_zero_numbers(numbers: Sequence[int]) -> list[int]:
    """The numbers that process 0 passes, on all processes; all must call it."""
    if jax.process_count() == 1:
        return list(numbers)
    count = int(multihost_utils.broadcast_one_to_all(np.int32(len(numbers))))
    mine = np.zeros(count, np.int32)
    if jax.process_index() == 0:
        mine[:] = numbers
    return multihost_utils.broadcast_one_to_all(mine).tolist()


def check_shared(directory: Path) -> None:
    """Raises ValueError unless `directory` is the same for all processes.

    All must call it. A disk that caches lookups may show a new file late, at the first
    start of a run.
    """
    if jax.process_count() == 1:
        return
    (token,) = process_zero_numbers([secrets.randbits(31)])
    # A name that no process has looked for before.
    file = directory / f".shared-{token}"
    if jax.process_index() == 0:
        file.touch()
    all_agree(True)
    is_shared = all_agree(appears(file, SEEN_WITHIN))
    if jax.process_index() == 0:
        file.unlink(missing_ok=True)
    if not is_shared:
        raise ValueError(
            f"workdir={str(directory)!r} is not the same directory on all hosts; "
            "choose one that they share"
        )


def appears(file: Path, seconds: float) -> bool:
    """True as soon as `file` is there; False after so many seconds without it."""
    end = time.monotonic() + seconds
    while not file.exists():
        if time.monotonic() > end:
            return False
        time.sleep(0.2)
    return True


class Largest:
    """The largest of a number over all processes, which call it in step.

    One process has it at once. Several have that of `BEHIND` calls ago: so no step
    waits for it, and all see it at the same step.
    """

    def __init__(self):
        self._ahead: collections.deque = collections.deque()
        self._mesh = Mesh(np.array(jax.devices()), ("all",))
        whole = NamedSharding(self._mesh, PartitionSpec())
        self._max = jax.jit(jax.numpy.max, out_shardings=whole)

    def __call__(self, value: int) -> int:
        """Adds this process's number."""
        if jax.process_count() == 1:
            return value
        cut = NamedSharding(self._mesh, PartitionSpec("all"))
        numbers: Any = jax.make_array_from_callback(
            (jax.device_count(),), cut, lambda index: np.full(1, value, np.int32)
        )
        self._ahead.append(self._max(numbers))
        return int(self._ahead.popleft()) if len(self._ahead) > BEHIND else 0
