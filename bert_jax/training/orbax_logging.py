"""Orbax's own account of a failure, hundreds of lines long, kept off the screen."""

import contextlib
import gc
import logging
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def quiet_orbax() -> Iterator[None]:
    """Drops what Orbax logs, and what its abandoned coroutines print, while it lasts.

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
