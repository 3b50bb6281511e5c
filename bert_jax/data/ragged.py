"""Rows of unequal lengths, held in memory and padded batch by batch."""

from collections.abc import Mapping

import numpy as np

from bert_jax.data import order
from bert_jax.data.length_buckets import padded

# Rows are padded to one of these lengths, or to a multiple of the last. Each costs one
# compilation of the training step, so there are fewer than for prediction.
LENGTHS = (16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)

# So many batches are sorted by length together.
WINDOW = 16


class RaggedRows:
    """Sequences of N rows, random access by row.

    Args:
      sequences: for each name the N sequences, alike in length for all names.
      fill: what stands behind a sequence, by the same names.
      columns: arrays `[N, ...]` that go along, one entry a row.
      max_length: rows are never padded beyond it.
      pads_left: whether rows are padded in front.

    >>> ids = [np.array([2, 5, 3]), np.array([2, 5, 6, 7, 3])]
    >>> rows = RaggedRows({"input_ids": ids}, {"input_ids": 0}, {}, max_length=512)
    >>> rows.gather(np.array([1, 0]), length=6)["input_ids"]
    array([[2, 5, 6, 7, 3, 0],
           [2, 5, 3, 0, 0, 0]], dtype=int32)
    """

    sequences_per_row = 1

    def __init__(
        self,
        sequences: Mapping[str, list[np.ndarray]],
        fill: Mapping[str, int],
        columns: Mapping[str, np.ndarray],
        max_length: int,
        pads_left: bool = False,
    ):
        first = next(iter(sequences.values()))
        self.lengths = np.array([len(x) for x in first], np.int64)
        self.max_length = max_length
        self.pads_left = pads_left
        self.columns = dict(columns)
        self._starts = np.cumsum(self.lengths) - self.lengths
        self._flat = {k: np.concatenate([*x, [fill[k]]]) for k, x in sequences.items()}

    def __len__(self) -> int:
        return len(self.lengths)

    def padded(self, indices: np.ndarray) -> int:
        """The length that a batch of these rows is padded to."""
        return padded(int(self.lengths[indices].max()), LENGTHS, self.max_length)

    def gather(
        self, indices: np.ndarray, length: int | None = None
    ) -> dict[str, np.ndarray]:
        """Rows `indices` `[B]`: int32 sequences `[B, L]`, their mask, and columns.

        L is `length`, or else what the longest of them needs.
        """
        indices = np.asarray(indices)
        L, lengths = length or self.padded(indices), self.lengths[indices][:, None]
        places = np.arange(L) - (L - lengths if self.pads_left else 0)
        real = (places >= 0) & (places < lengths)
        # The last number of each flat array is what stands behind a sequence.
        taken = np.where(real, self._starts[indices][:, None] + places, -1)
        batch = {
            name: flat[taken].astype(np.int32) for name, flat in self._flat.items()
        }
        batch["attention_mask"] = real.astype(np.int32)
        return batch | {name: x[indices] for name, x in self.columns.items()}


def batch_of(
    source: RaggedRows, examples: np.ndarray, seed: int, stop: int | None = None
) -> np.ndarray:
    """The places in the stream `[B]` that stand together instead of `examples`.

    `WINDOW` batches of the stream are sorted by length and cut into batches anew, which
    come in a seeded order. So a batch is still a function of (seed, examples seen), and
    every epoch visits each row once.

    Args:
      source: whose rows the stream holds.
      examples: B places that follow each other, from a multiple of B.
      seed: of the stream and of the order of batches.
      stop: where the stream ends; a window never reaches beyond it.
    """
    size, number = len(examples), int(examples[0]) // len(examples)
    if examples[0] % size:
        raise ValueError(
            f"start={examples[0]} is not a multiple of batch_size={size}; rows grouped "
            "by length can only go on between batches"
        )
    window, place = divmod(number, WINDOW)
    end = (window + 1) * WINDOW * size
    end = end if stop is None else min(end, stop - stop % size)
    stream = np.arange(window * WINDOW * size, end)
    _, rows = order.epochs_and_rows(stream, len(source), seed)
    alike = stream[np.argsort(source.lengths[rows], kind="stable")].reshape(-1, size)
    return alike[order.permute(np.array([place]), len(alike), (seed, window))[0]]
