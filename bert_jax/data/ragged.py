"""Rows of unequal lengths, held in memory and padded batch by batch."""

from collections.abc import Mapping

import numpy as np

from bert_jax.data.length_buckets import TRAINING_LENGTHS, padded_length


class RaggedRows:
    """Sequences of N rows, random access by row.

    Args:
      sequences: for each name the N sequences, alike in length for all names.
      fill: the padding behind a sequence, by the same names.
      columns: further arrays `[N, ...]`, one entry a row.
      max_length: rows are never padded beyond it.
      pads_left: True to pad in front of a sequence.

    >>> ids = [np.array([2, 5, 3]), np.array([2, 5, 6, 7, 3])]
    >>> rows = RaggedRows({"input_ids": ids}, {"input_ids": 0}, {}, max_length=512)
    >>> rows.gather(np.array([1, 0]), length=6)["input_ids"]
    array([[2, 5, 6, 7, 3, 0],
           [2, 5, 3, 0, 0, 0]], dtype=int32)
    """

    sequences_per_row = 1

    # Numbers of the texts of each row `[N, C]`, -1 for none, where a batch is not to
    # have a text twice.
    texts: np.ndarray | None = None

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
        self.columns = dict(columns)
        self._pads_left = pads_left
        self._starts = np.cumsum(self.lengths) - self.lengths
        self._flat = {k: np.concatenate([*x, [fill[k]]]) for k, x in sequences.items()}

    def __len__(self) -> int:
        return len(self.lengths)

    def padded_length(self, indices: np.ndarray) -> int:
        """The length that a batch of these rows is padded to."""
        most = int(self.lengths[indices].max())
        return padded_length(most, TRAINING_LENGTHS, self.max_length)

    def gather(
        self, indices: np.ndarray, length: int | None = None
    ) -> dict[str, np.ndarray]:
        """Rows `indices` `[B]`: int32 sequences `[B, L]`, their mask, and columns.

        L is `length`, by default `padded_length(indices)`.
        """
        indices = np.asarray(indices)
        L = length or self.padded_length(indices)
        lengths = self.lengths[indices][:, None]
        places = np.arange(L) - (L - lengths if self._pads_left else 0)
        real = (places >= 0) & (places < lengths)
        # The last number of each flat array is its padding.
        taken = np.where(real, self._starts[indices][:, None] + places, -1)
        batch = {
            name: flat[taken].astype(np.int32) for name, flat in self._flat.items()
        }
        batch["attention_mask"] = real.astype(np.int32)
        return batch | {name: x[indices] for name, x in self.columns.items()}


class ChoiceRows(RaggedRows):
    """N rows of C sequences each, random access by row; see `RaggedRows`.

    A row is as long as the longest of its sequences. Where a row has fewer than C, the
    others have no token.

    Args:
      sequences: the N * C sequences, those of a row behind each other.
      choices: C.
      columns: further arrays `[N, ...]`, one entry a row.
      texts: see `RaggedRows.texts`.
    """

    def __init__(
        self,
        sequences: RaggedRows,
        choices: int,
        columns: Mapping[str, np.ndarray],
        texts: np.ndarray | None = None,
    ):
        self.lengths = sequences.lengths.reshape(-1, choices).max(1)
        self.max_length = sequences.max_length
        self.columns = dict(columns)
        self.texts = texts
        self._sequences, self._offsets = sequences, np.arange(choices)

    def gather(
        self, indices: np.ndarray, length: int | None = None
    ) -> dict[str, np.ndarray]:
        """Rows `indices` `[B]`: int32 sequences `[B, C, L]`, their mask, and columns.

        L is `length`, by default `padded_length(indices)`.
        """
        indices = np.asarray(indices)
        length = length or self.padded_length(indices)
        places = indices[:, None] * len(self._offsets) + self._offsets
        batch = self._sequences.gather(places.ravel(), length)
        batch = {name: x.reshape(*places.shape, -1) for name, x in batch.items()}
        return batch | {name: x[indices] for name, x in self.columns.items()}
