"""A stream of documents -> chunks of one split each, which become shards."""

import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from bert_jax.data import corpus
from bert_jax.data.corpus import Document

# After moving two documents to the other split, a chunk still holds two for pairs.
FEWEST_DOCUMENTS = 4


@dataclass
class Chunk:
    """Documents number `index` of a split: what one shard is made from."""

    split: str
    index: int
    documents: list[Document]

    @property
    def characters(self) -> int:
        return sum(map(_characters, self.documents))


def group(
    documents: Iterable[Document], *, held_out: float, fewest: int, size: int
) -> Iterator[Chunk]:
    """Groups documents into chunks of about `size` characters, in stream order.

    A document's split follows from its text (`corpus.is_held_out`), so that a larger
    corpus never trains on what a smaller one evaluated. Each split gets at least
    `fewest` documents: see `_share_a_small_corpus`. At most two chunks of each split
    are held in memory.
    """
    train, evaluation = _Group("train", size), _Group("eval", size)
    for document in documents:
        out = held_out > 0 and corpus.is_held_out(document, held_out)
        yield from (evaluation if out else train).add(document)
    total = train.count + evaluation.count
    if total < fewest:
        raise ValueError(_too_few(total))
    if held_out > 0:
        _share_a_small_corpus(train, evaluation, fewest)
    yield from train.close()
    yield from evaluation.close()


class _Group:
    """The documents of one split on their way into chunks. The last full chunk waits,
    so that the rest of the stream joins it and does not end as a chunk too small."""

    def __init__(self, split: str, size: int):
        self.split, self.size = split, size
        self.count = self.emitted = self.characters = 0
        self.ready: list[Document] = []
        self.open: list[Document] = []

    def add(self, document: Document) -> Iterator[Chunk]:
        self.open.append(document)
        self.count += 1
        self.characters += _characters(document)
        if self.characters >= self.size and len(self.open) >= FEWEST_DOCUMENTS:
            yield from self._emit(self.ready)
            self.ready, self.open, self.characters = self.open, [], 0

    def close(self) -> Iterator[Chunk]:
        yield from self._emit(self.ready + self.open)

    def pending(self) -> list[Document]:
        return self.open or self.ready

    def _emit(self, documents: list[Document]) -> Iterator[Chunk]:
        if documents:
            yield Chunk(self.split, self.emitted, documents)
            self.emitted += 1


def _share_a_small_corpus(train: _Group, evaluation: _Group, fewest: int) -> None:
    """Leaves `fewest` documents to each split, whatever the hash chose.

    The last documents of the richer split move over. A corpus that has not enough for
    two splits is used whole in both, which measures memory, not language: it warns.
    """
    everything = train.ready + train.open + evaluation.ready + evaluation.open
    total = train.count + evaluation.count
    if total < 2 * fewest:
        warnings.warn(
            f"a corpus of {total} document(s) is too small to hold any out: "
            "evaluation will run on the training text",
            stacklevel=2,
        )
        train.ready, evaluation.ready = everything, list(everything)
        train.open, evaluation.open = [], []
        return
    for poor, rich in ((evaluation, train), (train, evaluation)):
        missing = max(0, fewest - poor.count)
        for _ in range(missing):
            poor.open.append(rich.pending().pop())
        if missing:
            warnings.warn(
                f"by hash the {poor.split} split had {poor.count} document(s); the "
                f"last {missing} of the corpus moved there",
                stacklevel=2,
            )


def _characters(document: Document) -> int:
    return sum(map(len, document))


def _too_few(total: int) -> str:
    if not total:
        return "the corpus is empty: no document was found; check paths and format"
    return (
        f'pairs="next" needs two documents, this corpus has {total}; '
        'separate documents by blank lines or choose pairs="order" or "none"'
    )
