"""Ctrl-C ends a command promptly, whatever it is doing."""

import _thread
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

from bert_jax import files

# The exit code as shells number it: 128 and the number of the signal.
STATUS = 128 + signal.SIGINT

# Seconds after which the exception is raised again, and the process is ended.
AGAIN, LAST = 0.3, 1.5


@contextlib.contextmanager
def ends_the_process() -> Iterator[None]:
    """Ends the process with `STATUS` after Ctrl-C; what is under way cleans up first.

    The exception alone would not do: libraries drop what their callbacks raise, as JAX
    does in garbage collections, or turn it into another one. So a thread that sees the
    signal raises it again, and at last ends the process.
    """
    interrupted, over = threading.Event(), threading.Event()

    def interrupt(number: int, frame: FrameType | None) -> None:
        interrupted.set()
        # Whoever drops the exception prints it, as C code does during imports.
        sys.stderr = open(os.devnull, "w")
        raise KeyboardInterrupt

    def watch() -> None:
        while byte := os.read(reader, 1):
            if byte[0] == signal.SIGINT:
                if not over.wait(AGAIN):
                    _thread.interrupt_main()
                if not over.wait(LAST - AGAIN):
                    files.discard_unfinished()
                    os._exit(STATUS)

    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.signal(signal.SIGINT, interrupt)
    wakeup = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    except BaseException:
        if interrupted.is_set():
            _end()
        raise
    finally:
        over.set()
        signal.set_wakeup_fd(wakeup)


def _end() -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    os._exit(STATUS)
