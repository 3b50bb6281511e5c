"""A pool of worker processes, by loky.

Its workers are fresh interpreters that do not run the caller's `__main__` again, and a
function or tokenizer that a notebook or script defines reaches them all the same.
"""

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, wait
from typing import Any

from bert_jax.data import optional


def run(
    function: Callable[..., Any],
    tasks: Iterable[Any],
    processes: int,
    *constants: object,
) -> Iterator[Any]:
    """Yields `function(*constants, task)` for each task, in order of completion.

    Tasks are taken from their iterable as workers become free: no more than
    `processes` + 1 are held. With one process everything runs in this one.
    """
    if processes == 1:
        yield from (function(*constants, task) for task in tasks)
        return
    loky = optional.require("loky", "preparing text in several processes")
    executor = loky.ProcessPoolExecutor(
        processes,
        initializer=_start,
        initargs=(function, constants, os.getpid()),
        env={"TOKENIZERS_PARALLELISM": "false"},  # the processes are the parallelism
    )
    try:
        yield from _results(executor, tasks, processes)
    except BrokenExecutor as error:
        raise RuntimeError(
            "a worker process was killed (out of memory?); finished shards are not "
            "lost: run again with fewer processes"
        ) from error
    finally:
        executor.shutdown(wait=True, kill_workers=True)


def _results(executor: Any, tasks: Iterable[Any], processes: int) -> Iterator[Any]:
    waiting: set[Future] = set()
    for task in tasks:
        waiting.add(executor.submit(_apply, task))
        if len(waiting) > processes:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)
    for future in waiting:
        yield future.result()


# A setting of Linux: the signal that a process gets when its parent has ended.
_PR_SET_PDEATHSIG = 1

_function: Callable[..., Any]
_constants: tuple[object, ...]


def _start(
    function: Callable[..., Any], constants: tuple[object, ...], parent: int
) -> None:
    """Stores in a worker, once, the function and constants of all tasks."""
    global _function, _constants
    _function, _constants = function, constants
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the caller decides when to stop
    if sys.platform == "linux":  # at once, where the thread would wait for a long call
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    """Ends this worker once its parent was killed, which loky does not."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _apply(task: Any) -> Any:
    return _function(*_constants, task)
