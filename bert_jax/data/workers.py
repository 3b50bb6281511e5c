"""Worker processes that know nothing of the caller's `__main__`.

`multiprocessing` with spawn runs the calling script again in each child, which a
script without a `__main__` guard, or one with side effects, does not survive; fork is
unsafe once JAX has started threads. So each worker is a fresh interpreter that reads
pickled tasks from a pipe, and ends with the pipe, also when the caller is killed.
"""

import contextlib
import os
import pickle
import queue
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait


def run(
    function: Callable, tasks: Iterable, processes: int, *constants: object
) -> Iterator[object]:
    """Yields `function(*constants, task)` for each task, in order of completion.

    Tasks are taken from their iterable as workers become free: no more than
    `processes` + 1 are held. With one process everything runs in this one.
    """
    if processes == 1:
        yield from (function(*constants, task) for task in tasks)
        return
    workers = [_Worker(function, constants) for _ in range(processes)]
    try:
        yield from _spread(workers, tasks)
    finally:
        for worker in workers:
            worker.close()


def _spread(workers: list["_Worker"], tasks: Iterable) -> Iterator[object]:
    idle: queue.Queue[_Worker] = queue.Queue()
    for worker in workers:
        idle.put(worker)

    def call(task):
        worker = idle.get()
        try:
            return worker(task)
        finally:
            idle.put(worker)

    with ThreadPoolExecutor(len(workers)) as threads:
        waiting = set()
        for task in tasks:
            waiting.add(threads.submit(call, task))
            if len(waiting) > len(workers):
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
        for future in waiting:
            yield future.result()


class _Worker:
    """One interpreter that applies one function, given once with its constants."""

    def __init__(self, function: Callable, constants: tuple):
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(sys.path),
            "TOKENIZERS_PARALLELISM": "false",  # the processes are the parallelism
        }
        self._process = subprocess.Popen(
            [sys.executable, "-c", f"import {__name__} as w; w.serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )
        self._send((function, constants))

    def __call__(self, task: object) -> object:
        self._send(task)
        try:
            succeeded, value = pickle.load(self._process.stdout)
        except EOFError:
            raise self._death() from None
        if not succeeded:
            raise value
        return value

    def _send(self, message: object) -> None:
        try:
            pickle.dump(message, self._process.stdin, pickle.HIGHEST_PROTOCOL)
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._death() from None

    def _death(self) -> RuntimeError:
        return RuntimeError(
            f"a worker process ended with status {self._process.wait()} (out of "
            "memory?); what is finished is kept: run again with fewer processes"
        )

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()


def serve() -> None:
    """The worker's side: tasks from standard input, results to standard output."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the caller decides when to stop
    inward = sys.stdin.buffer
    outward = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # a stray print harms nothing
    try:
        function, constants = pickle.load(inward)
    except Exception as error:
        function, constants = _fail, (_portable(error),)
    while True:
        try:
            task = pickle.load(inward)
        except EOFError:
            return
        try:
            answer = True, function(*constants, task)
        except Exception as error:
            answer = False, _portable(error)
        try:
            pickle.dump(answer, outward, pickle.HIGHEST_PROTOCOL)
            outward.flush()
        except BrokenPipeError:
            os._exit(1)  # the caller is gone, and nobody is left to tell


def _fail(error: Exception, task: object) -> None:
    raise error


def _portable(error: Exception) -> Exception:
    """The error itself where it survives pickling, else its traceback as text."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(traceback.format_exc())
    return error
