"""SIGTERM and Ctrl-C ask a run to save and stop; the second one ends it at once."""

import signal
from types import TracebackType


class StopSignals:
    """Context in which the first signal only sets `received`.

    Preemptible machines send SIGTERM some seconds before they go.
    """

    def __init__(self):
        self.received: str | None = None
        self._previous = {}

    def __enter__(self) -> "StopSignals":
        for number in (signal.SIGTERM, signal.SIGINT):
            self._previous[number] = signal.signal(number, self._receive)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _receive(self, number, frame):
        self.received = signal.Signals(number).name
        for each, handler in self._previous.items():
            signal.signal(each, handler)
