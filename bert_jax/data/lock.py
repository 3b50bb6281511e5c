"""One process at a time in a directory, on one machine or on several."""

import contextlib
import fcntl
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from bert_jax import files

FILE = ".lock"

# Seconds between two signs of life in the lock file, and those after which a process of
# another machine counts as gone.
HEARTBEAT, GONE = 5.0, 20.0


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Keeps other processes out of `directory`, which exists, while it lasts.

    The system gives the lock of a process back however it ends. A shared disk may keep
    that of a machine that is gone, or may not know locks at all. So the owner also
    touches the file, and a process of another machine that does not is no obstacle.

    Raises:
      ValueError: where another process has it; the message names it.
    """
    path = directory / FILE
    file = _taken(path)
    file.truncate(0)
    file.write(f"process {os.getpid()} on {socket.gethostname()}")
    file.flush()
    over = threading.Event()
    threading.Thread(target=_show_life, args=(path, over), daemon=True).start()
    try:
        yield
    finally:
        over.set()
        with contextlib.suppress(OSError):
            path.unlink()
        file.close()


def _taken(path: Path) -> IO[str]:
    """The open lock file, which this process now has."""
    with files.write_errors(path):
        file = path.open("a+", encoding="utf-8")
    free = _try_lock(file)
    if free and not _is_at(path, file):  # another process was done with it just now
        file.close()
        return _taken(path)
    file.seek(0)
    owner = file.read()
    is_local = not owner or owner.endswith(f" on {socket.gethostname()}")
    if free and is_local:
        return file
    if is_local or _is_alive(path):
        file.close()
        raise ValueError(
            f"{path.parent} is in use by {owner or 'another process'}; wait until it "
            "ends, or choose another directory"
        )
    if not free:  # the lock of a machine that is gone stays with the old file
        file.close()
        path.unlink(missing_ok=True)
        return _taken(path)
    return file


def _is_at(path: Path, file: IO[str]) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def _try_lock(file: IO[str]) -> bool:
    """True if no other process has the lock, as far as the disk knows locks."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def _is_alive(path: Path) -> bool:
    """True if another machine touches the file while this one looks."""
    first, end = _touched(path), time.monotonic() + GONE
    while time.monotonic() < end:
        time.sleep(HEARTBEAT / 5)
        if _touched(path) != first:
            return True
    return False


def _touched(path: Path) -> int:
    with path.open() as file:  # opening asks the server, where a look at it may not
        return os.fstat(file.fileno()).st_mtime_ns


def _show_life(path: Path, over: threading.Event) -> None:
    while not over.wait(HEARTBEAT):
        with contextlib.suppress(OSError):
            os.utime(path)
