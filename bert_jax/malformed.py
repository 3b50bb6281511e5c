"""Files that hold something else than they should."""

import contextlib
import json
import os
from collections.abc import Iterator

# What Python raises where JSON has a number for a name, or half of what it should.
SIGNS = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    RecursionError,
    TypeError,
    UnicodeError,
    json.JSONDecodeError,
)


@contextlib.contextmanager
def refused(path: str | os.PathLike, remedy: str) -> Iterator[None]:
    """Raises ValueError where what `path` holds makes Python stumble."""
    try:
        yield
    except SIGNS as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0][:150]
        raise ValueError(f"{path} is malformed ({reason}); {remedy}") from error
