"""Rows -> batches for this host, by tf.data.

A training batch is a pure function of (seed, examples seen): batch k after `start`
holds the examples start + k * B, …, each of which is a row of its epoch's permutation
(`order`). So a run resumes anywhere at once, without iterator state, and any number of
hosts reads the same global sequence, each the part of every batch that its devices
need (`share`: places in the batch).
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from bert_jax.data import order
from bert_jax.data.length_buckets import batch_of_like_lengths
from bert_jax.data.optional import tensorflow
from bert_jax.data.ragged import RaggedRows

Batch = dict[str, np.ndarray]
_PREFETCHED = 2  # batches ready while the device works on one


class RandomAccess(Protocol):
    """N rows, random access by number."""

    def __len__(self) -> int: ...

    def gather(self, indices: np.ndarray) -> Batch:
        """Rows `indices` `[B]` as arrays with leading axis B."""
        ...


def batches(
    source: RandomAccess,
    *,
    batch_size: int,
    seed: int,
    start: int = 0,
    stop: int | None = None,
    share: Sequence[int] | np.ndarray | None = None,
) -> Iterator[Batch]:
    """Training batches: arrays of `source.gather`, `example` and `row` uint64 [B].

    `example` is each row's place in the stream, `row` its place in the source: masks
    are drawn from one of them. Of `RaggedRows`, each batch holds rows of like length,
    see `length_buckets`. Where these keep texts apart there is `valid`, too: bool [B],
    False for a row with a text of another row.

    Args:
        batch_size: examples of the global batch.
        seed: of the order; every epoch has its own.
        start: examples already seen; any number, also from another batch size.
        stop: examples after which to end, an incomplete batch being left out; None
            for an endless stream.
        share: places in each batch that this host reads, such as
            `sharding.process_rows`; None for all.
    """
    local = _share(batch_size, share)
    _require_rows(source)
    if start < 0:
        raise ValueError(f"start={start} is before the first example; use 0 or more")

    def load(k: int) -> Batch:
        first = start + k * batch_size
        examples, rows, alone = _draw(source, batch_size, seed, first, stop)
        batch = _gather(source, rows, local)
        if isinstance(source, RaggedRows) and source.texts is not None:
            batch["valid"] = alone[local]
        places = {"example": examples, "row": rows}
        return batch | {k: x[local].astype(np.uint64) for k, x in places.items()}

    count = np.iinfo(np.int64).max if stop is None else (stop - start) // batch_size
    return _stream(load, max(count, 0))


def examples_and_rows(
    source: RandomAccess,
    batch_size: int,
    seed: int,
    first: int,
    stop: int | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """The batch after `first` examples: places in the stream, and rows `[B]`."""
    examples, rows, _ = _draw(source, batch_size, seed, first, stop)
    return examples, rows


def _draw(
    source: RandomAccess, batch_size: int, seed: int, first: int, stop: int | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Places in the stream, rows, and False for rows with a text of another `[B]`."""
    examples, alone = first + np.arange(batch_size), np.ones(batch_size, bool)
    if isinstance(source, RaggedRows):
        examples, alone = batch_of_like_lengths(
            source.lengths, examples, seed, stop, source.texts
        )
    return examples, order.epochs_and_rows(examples, len(source), seed)[1], alone


def eval_batches(
    source: RandomAccess,
    *,
    batch_size: int,
    share: Sequence[int] | np.ndarray | None = None,
) -> Iterator[Batch]:
    """Every row once, its number as `example` and `row` uint64 [B], `valid` bool [B].

    Rows come in order, `RaggedRows` in the order of their lengths. The last batch is
    filled up with the first row, where `valid` is False.
    """
    local = _share(batch_size, share)
    _require_rows(source)
    in_order = np.arange(len(source))
    if isinstance(source, RaggedRows):
        in_order = np.argsort(source.lengths, kind="stable")

    def load(k: int) -> Batch:
        places = k * batch_size + np.arange(batch_size)
        valid = places < len(source)
        rows = in_order[np.where(valid, places, 0)]
        batch = _gather(source, rows, local)
        numbers = rows[local].astype(np.uint64)
        return batch | {"example": numbers, "row": numbers, "valid": valid[local]}

    return _stream(load, -(-len(source) // batch_size))


def from_dataset(
    dataset: Any,
    *,
    batch_size: int,
    start: int = 0,
    share: Sequence[int] | np.ndarray | None = None,
) -> Iterator[Batch]:
    """Batches of your own `tf.data.Dataset` of single examples (dicts of tensors).

    Exact resuming then depends on the dataset: it must yield the same examples in the
    same order on every host and in every run (no unseeded shuffle), and repeat itself
    if it shall not end. Each host reads all of it and uses its part; resuming reads and
    drops `start` examples, which takes as long as reading them did. An incomplete last
    batch is left out.
    """
    tf = tensorflow()
    local = _share(batch_size, share)

    def part(x):
        return tf.gather(x, local)

    stream = dataset.skip(start).batch(batch_size, drop_remainder=True)
    stream = stream.map(lambda batch: tf.nest.map_structure(part, batch))
    for k, batch in enumerate(stream.prefetch(_PREFETCHED).as_numpy_iterator()):
        examples = start + k * batch_size + local
        yield batch | {"example": examples.astype(np.uint64)}


def _gather(source: RandomAccess, rows: np.ndarray, local: np.ndarray) -> Batch:
    """This host's rows of a batch; every host pads them to the same length."""
    if isinstance(source, RaggedRows):
        return source.gather(rows[local], source.padded_length(rows))
    return source.gather(rows[local])


def _share(batch_size: int, share: Sequence[int] | np.ndarray | None) -> np.ndarray:
    """This host's places in the global batch."""
    if batch_size < 1:
        raise ValueError(f"batch_size={batch_size} leaves no row; use 1 or more")
    places = np.arange(batch_size)
    if share is not None and not np.isin(share, places).all():
        raise ValueError(
            f"share={np.asarray(share).tolist()} has places outside of a batch of "
            f"{batch_size}; use numbers from 0 to {batch_size - 1}"
        )
    return places if share is None else np.asarray(share)


def _require_rows(source: RandomAccess) -> None:
    if not len(source):
        raise ValueError("the source holds no row: there is nothing to batch")


def _stream(load: Callable[[int], Batch], count: int) -> Iterator[Batch]:
    """`load(k)` for k below `count`, running ahead of the reader on another thread."""
    if not count:  # a run that is over
        return iter(())
    tf = tensorflow()
    example = load(0)  # for the names, types and shapes that tf.data needs
    names = sorted(example)
    types = [tf.as_dtype(example[name].dtype) for name in names]
    errors: list[Exception] = []

    def arrays(k):
        try:
            batch = load(int(k))
        except Exception as error:
            errors.append(error)
            raise
        return [batch[name] for name in names]

    def call(k):
        tensors = tf.numpy_function(arrays, [k], types, stateful=False)
        for array, name in zip(tensors, names, strict=True):
            # Ragged rows differ in L from batch to batch.
            array.set_shape([None] * example[name].ndim)
        return dict(zip(names, tensors, strict=True))

    dataset = tf.data.Dataset.range(count).map(call).prefetch(_PREFETCHED)
    options = tf.data.Options()
    options.autotune.enabled = False
    options.threading.private_threadpool_size = 1
    iterator = dataset.with_options(options).as_numpy_iterator()
    return _with_original_errors(iterator, tf.errors.OpError, errors)


def _with_original_errors(
    iterator: Iterator[Batch], wrapped: type[Exception], errors: list[Exception]
) -> Iterator[Batch]:
    """Raises the Python errors of `load` as they were; tf.data turns them into text."""
    try:
        yield from iterator
    except wrapped:
        if not errors:
            raise
        raise errors[0] from None
