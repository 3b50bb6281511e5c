"""Signals ask a run to save and stop; the second one ends it at once.

They are SIGTERM, Ctrl-C, and SIGHUP, which a terminal sends that is closed.
"""

import contextlib
import functools
import os
import signal
import sys
import threading
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import NoReturn, TypeVar

import jax

from bert_jax.data.progress import in_notebook
from bert_jax.training.hosts import Largest

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

# Seconds in which a second signal may end Python in the usual way.
GRACE = 1.0

T = TypeVar("T")


class Interrupted(Exception):
    """A signal came in the midst of something that will be done again."""


class StopSignals:
    """Context in which a first signal is only noted, for `poll` to tell.

    Preemptible machines send SIGTERM some seconds before they go. A thread sees the
    signals, so that they are seen while XLA compiles, too: Python's own handlers run
    between two lines of Python only. Outside the main thread nothing is caught.

    Attributes:
      preparing: whether nothing is under way but this process's own preparation, so
        that it may end at once; others of the run notice that it is gone.
      expendable: whether a run of one process may end at once, because nothing would be
        lost. Several must agree, by `poll`.
    """

    def __init__(self):
        self.preparing = False
        self.expendable = False
        self._received = 0
        self._agreed = 0
        self._previous = {}
        self._over = threading.Event()

    def __enter__(self) -> "StopSignals":
        if threading.current_thread() is not threading.main_thread():
            return self
        self._pipe = os.pipe()
        os.set_blocking(self._pipe[1], False)
        self._wakeup = signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
        for number in SIGNALS:
            # Under nohup the end of the terminal is ignored already.
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                self._previous[number] = signal.signal(number, self._step_aside)
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        if not self._previous:
            return
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup)
        os.close(self._pipe[1])
        self._thread.join()
        os.close(self._pipe[0])

    def poll(self) -> str | None:
        """The signal that came; with several processes, to any of them.

        All of them must call it in step.
        """
        self._agreed = self._agreed or self._largest(self._received)
        return signal.Signals(self._agreed).name if self._agreed else None

    def until(self, items: Iterable[T]) -> Iterator[T]:
        """`items` while there is no signal, and then `Interrupted`."""
        for item in items:
            if self.poll():
                raise Interrupted
            yield item

    @functools.cached_property
    def _largest(self) -> Largest:
        # Not before the devices are known.
        return Largest()

    def _step_aside(self, number, frame):
        # Python runs this between two lines; from here on a signal does what it did.
        for each, handler in self._previous.items():
            signal.signal(each, handler)
        if self.preparing and in_notebook():
            end(f"{signal.Signals(number).name}: stopped; there is nothing new")

    def _watch(self):
        while byte := os.read(self._pipe[0], 1):
            again, number = self._received, byte[0]
            if number not in self._previous:  # one that the program handles itself
                continue
            self._received = self._received or number
            if not (again or self.preparing or self._is_alone_and_expendable()):
                continue
            # In a notebook a signal must not end the process.
            if in_notebook() or self._over.wait(GRACE if again else 0):
                continue
            what = "again, ended at once" if again else "stopped; there is nothing new"
            name = signal.Signals(number).name
            with contextlib.suppress(OSError):
                print(f"{name}: {what}", file=sys.stderr, flush=True)
            os._exit(128 + number)

    def _is_alone_and_expendable(self):
        return self.expendable and jax.process_count() == 1


def end(message: str) -> NoReturn:
    """Ends a run after a signal: the process, or in a notebook its cell alone."""
    raise (KeyboardInterrupt if in_notebook() else SystemExit)(message)
