"""Output that a run does not depend on: it goes on where its terminal is gone."""

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO


@contextlib.contextmanager
def lasting_output() -> Iterator[None]:
    """Drops what is printed once a stream has no reader any more, while it lasts.

    A dropped connection closes the pipe or the terminal that a program prints to; the
    next line of progress would end a run with nothing saved.
    """
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = map(_Lasting, before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


class _Lasting:
    """A text stream whose errors of writing end it, and not the program."""

    def __init__(self, stream: TextIO):
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with self._errors_dropped():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with self._errors_dropped():
            self._stream.flush()

    @contextlib.contextmanager
    def _errors_dropped(self) -> Iterator[None]:
        try:
            yield
        except OSError:
            # Python writes what it still holds when it ends, and would fail again.
            with contextlib.suppress(OSError, ValueError):
                lost = self._stream.fileno()
                os.dup2(os.open(os.devnull, os.O_WRONLY), lost)
