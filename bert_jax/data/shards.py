"""Documents -> the records of one shard: a pure function of (documents, seed, index).

Any engine that maps functions over groups of documents (Apache Beam, Ray Data, Spark)
can run `prepare_shard`; `prepare` is the engine for one machine.
"""

import random
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import numpy as np

from bert_jax.data import corpus
from bert_jax.data.corpus import Document
from bert_jax.data.prepared_rows import Counts
from bert_jax.data.records import RowConfig, fill_rows
from bert_jax.data.sequences import Tokens, flatten, make_sequences, pack
from bert_jax.files import counted

_TEXTS_AT_ONCE = 2048  # tokenizers hold a few KB for each text of a call


def prepare_shard(
    documents: Sequence[Document],
    split: str,
    index: int,
    *,
    tokenizer: Any,
    recipe: RowConfig,
    format: str = "auto",
) -> tuple[np.ndarray, Counts]:
    """Records [R] of the packed rows of these documents, and their counts.

    `index` numbers the group within its split and, with the recipe's seed, fixes every
    draw. A record's `tobytes()` is an example of the dataset. Only the
    train split is paired `dupe_factor` times.
    """
    tokens = _tokenize(documents, tokenizer, format)
    counts = Counts(len(tokens), len(tokens.bounds) - 1, len(tokens.ids))
    layout = recipe.layout(tokenizer.vocab_size)
    if not len(tokens):
        return layout.blank(0), counts
    rng = random.Random(f"{recipe.seed}/{split}/{index}")
    passes = []
    for _ in range(recipe.dupe_factor if split == "train" else 1):
        records, added = _one_pass(tokens, tokenizer, recipe, rng)
        passes.append(records)
        counts += added
    records = np.concatenate(passes)
    order = list(range(len(records)))
    rng.shuffle(order)
    return records[order], counts


def unigrams(records: np.ndarray, tokenizer: Any) -> np.ndarray:
    """The count of each token that masking may hide in the records: int64 [V]."""
    counts = np.bincount(records["input_ids"].ravel(), minlength=tokenizer.vocab_size)
    counts[[tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id]] = 0
    return counts


def _tokenize(documents: Iterable[Document], tokenizer: Any, format: str) -> Tokens:
    split = [corpus.sentences(document, format) for document in documents]
    encoded = _encode(chain.from_iterable(split), tokenizer)
    tokens = flatten(list(islice(encoded, len(document))) for document in split)
    largest = int(tokens.ids.max(initial=0))
    if largest >= tokenizer.vocab_size:
        raise ValueError(
            f"the tokenizer gave id {largest} and has vocab_size="
            f"{tokenizer.vocab_size}; does its vocabulary have a repeated line?"
        )
    return tokens


def _encode(texts: Iterable[str], tokenizer: Any) -> Iterator[np.ndarray]:
    """The ids of each text, narrowed to arrays batch by batch to hold little."""
    texts = iter(texts)
    while batch := list(islice(texts, _TEXTS_AT_ONCE)):
        for ids in tokenizer.encode_batch(batch):
            yield np.array(ids, np.int32)


def _one_pass(
    tokens: Tokens, tokenizer: Any, recipe: RowConfig, rng: random.Random
) -> tuple[np.ndarray, Counts]:
    """The text paired and packed once: records [R] and their counts."""
    layout = recipe.layout(tokenizer.vocab_size)
    sequences = make_sequences(
        tokens,
        rng,
        pairs=recipe.pairs,
        sequence_length=recipe.sequence_length,
        short_seq_prob=recipe.short_seq_prob,
        sep_id=tokenizer.sep_id,
    )
    lengths = sequences.lengths().sum(1)
    records = fill_rows(
        layout,
        sequences,
        pack(lengths, layout.sequence_length, layout.sequences_per_row),
        cls_id=tokenizer.cls_id,
        sep_id=tokenizer.sep_id,
        pad_id=tokenizer.pad_id,
    )
    return records, Counts(
        sequences=len(lengths),
        labelled=int((sequences.labels >= 0).sum()),
        ones=int((sequences.labels == 1).sum()),
        rows=len(records),
        real_tokens=int(lengths.sum()),
        positions=records["input_ids"].size,
    )


# After moving two documents to the other split, a chunk still holds two for pairs.
FEWEST_DOCUMENTS = 4
# Shards of one size; see `group`.
CHUNKS = 500


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

    The size doubles after every `CHUNKS` chunks: compressed files, and datasets of
    TFDS, hold more text than their size tells.

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
        self.count = self.closed = self.emitted = self.characters = 0
        self.ready: list[Document] = []
        self.open: list[Document] = []

    def add(self, document: Document) -> Iterator[Chunk]:
        self.open.append(document)
        self.count += 1
        self.characters += _characters(document)
        size = self.size << self.closed // CHUNKS
        if self.characters >= size and len(self.open) >= FEWEST_DOCUMENTS:
            yield from self._emit(self.ready)
            self.ready, self.open, self.characters = self.open, [], 0
            self.closed += 1

    def close(self) -> Iterator[Chunk]:
        yield from self._emit(self.ready + self.open)

    def pending(self) -> list[Document]:
        return self.open or self.ready

    def _emit(self, documents: list[Document]) -> Iterator[Chunk]:
        if documents:
            yield Chunk(self.split, self.emitted, documents)
            self.emitted += 1


def _share_a_small_corpus(train: _Group, evaluation: _Group, fewest: int) -> None:
    """Gives each split `fewest` documents, also where the hash gave it fewer.

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
                f"by hash the {poor.split} split had "
                f"{counted(poor.count, 'document')}; the last {missing} of the corpus "
                "moved there",
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
