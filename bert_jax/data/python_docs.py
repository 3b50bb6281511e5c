"""The documentation installed with Python, as a corpus of English that needs no network."""

import inspect
from collections.abc import Iterator

import pydoc_data.topics


def documents() -> Iterator[tuple[str, ...]]:
    """Yields the documents, each a tuple of paragraphs, always in the same order."""
    for _, text in sorted(pydoc_data.topics.topics.items()):
        paragraphs = [" ".join(p.split()) for p in inspect.cleandoc(text).split("\n\n")]
        yield tuple(p for p in paragraphs if p)
