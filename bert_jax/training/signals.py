"""SIGTERM and Ctrl-C ask a run to save and stop; the second one ends it at once."""

import os
import signal
import sys
import threading
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import TypeVar

import jax

from bert_jax.training.hosts import Largest

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
      expendable: whether this process may end at once, because nothing would be lost.
    """

    def __init__(self):
        self.expendable = False
        self._received = 0
        self._agreed = 0
        self._largest = Largest()
        self._previous = {}
        self._over = threading.Event()

    def __enter__(self) -> "StopSignals":
        if threading.current_thread() is not threading.main_thread():
            return self
        self._pipe = os.pipe()
        os.set_blocking(self._pipe[1], False)
        self._wakeup = signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
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

    def _step_aside(self, number, frame):
        # Python runs this between two lines; from here on a signal does what it did.
        for each, handler in self._previous.items():
            signal.signal(each, handler)

    def _watch(self):
        while byte := os.read(self._pipe[0], 1):
            again, number = self._received, byte[0]
            self._received = self._received or number
            lonely = jax.process_count() == 1
            if not again and not (self.expendable and lonely):
                continue
            # In a notebook a signal must not end the process.
            if hasattr(sys, "ps1") or self._over.wait(GRACE if again else 0):
                continue
            what = "again, ended at once" if again else "stopped; there is nothing new"
            name = signal.Signals(number).name
            print(f"{name}: {what}", file=sys.stderr, flush=True)
            os._exit(128 + number)
