"""Prepared rows by number: records read in any order and laid out as model inputs."""

import os
import threading
from functools import cached_property
from pathlib import Path

import numpy as np

from bert_jax import files
from bert_jax.data import prepared_directory
from bert_jax.data.prepared_directory import Counts
from bert_jax.data.records import Layout

# Below the usual limit of 1,024 open files of a process. Reopening costs a millisecond.
_OPEN_FILES = 512


class PreparedRows:
    """One split of a prepared directory, random access by row.

    `gather` needs neither TensorFlow nor JAX. `layout` holds L and S, `counts` what the
    split holds, `stamp` from what and how the directory was made. Raises ValueError for
    a damaged directory, and a split that it has not.

    >>> from bert_jax.data.prepare import prepare
    >>> from bert_jax.data.row_config import RowConfig
    >>> recipe = RowConfig(sequence_length=20, sequences_per_row=2)
    >>> _ = prepare(["text.txt"], "rows", tokenizer=tokenizer, recipe=recipe)
    >>> batch = PreparedRows("rows").gather(np.array([3, 0]))
    >>> batch["input_ids"].shape, batch["pair_labels"].shape  # B, L and B, S
    ((2, 20), (2, 2))
    """

    def __init__(self, directory: str | os.PathLike, split: str = "train"):
        self.directory, self.split = Path(directory), split
        with files.refused(self.directory, "delete it and prepare it anew"):
            metadata = prepared_directory.read_metadata(self.directory)
            if split not in metadata["splits"]:
                raise ValueError(
                    f"{directory} has no split {split!r}, only "
                    f"{', '.join(metadata['splits'])}; prepare it with held_out above 0"
                )
            self.stamp: dict = metadata["stamp"]
            self.layout = Layout(**metadata["layout"])
            self.counts = Counts(**metadata["splits"][split]["counts"])
            self._ends = np.cumsum(metadata["splits"][split]["shard_lengths"])
        self._readers: dict = {}
        self._lock = threading.Lock()  # a reader has one position

    def __len__(self) -> int:
        return int(self._ends[-1])

    @cached_property
    def unigrams(self) -> np.ndarray:
        """How often each token stands in the train split, special ones 0: int64 [V]."""
        path = self.directory / prepared_directory.UNIGRAMS
        try:
            return np.load(path)
        except Exception as error:  # of many kinds, SyntaxError among them
            raise ValueError(
                f"{path} is damaged ({type(error).__name__}); delete the directory and "
                "prepare it anew"
            ) from error

    def gather(self, indices: np.ndarray) -> dict[str, np.ndarray]:
        """Rows `indices` [B] as model inputs, all int32.

        Returns:
            `input_ids`, `attention_mask` (1, 1, 2, 2, …: the number of the sequence in
            its row; 0 is padding), `token_type_ids` and `position_ids` (counted from
            each sequence's start) [B, L]; `cls_positions` (0 where absent) and
            `pair_labels` (-1 where absent) [B, S].

        Raises:
            IndexError: for rows that there are not.
            ValueError: for damaged ones.
        """
        records = np.frombuffer(self._read(np.asarray(indices)), self.layout.dtype)
        return {
            "input_ids": records["input_ids"].astype(np.int32),
            **model_inputs(records["lengths"].astype(np.int64), self.layout),
            "pair_labels": records["pair_labels"].astype(np.int32),
        }

    def _read(self, indices: np.ndarray) -> bytes:
        """The records of `indices` in their order, joined."""
        if indices.size and not 0 <= indices.min() <= indices.max() < len(self):
            raise IndexError(f"rows {indices} reach outside of {len(self)} rows")
        shards = np.searchsorted(self._ends, indices, side="right")
        places = indices - np.concatenate([[0], self._ends])[shards]
        with self._lock:
            records = map(self._read_one, shards.tolist(), places.tolist())
            joined = b"".join(records)
        if len(joined) != len(indices) * self.layout.dtype.itemsize:
            raise ValueError(
                f"{self.directory} holds records of another size than its "
                f"{prepared_directory.METADATA} says; delete it and prepare it anew"
            )
        return joined

    def _read_one(self, shard: int, place: int) -> bytes:
        # Not read([place]): that walks over every record of the file at each call.
        try:
            reader = self._reader(shard)
            reader.seek(place)
            return reader.read()
        except (RuntimeError, IndexError) as error:
            raise ValueError(
                f"row {place} of {self._path(shard)} cannot be read: {error}\n"
                "delete the prepared directory and make it anew"
            ) from error

    def _reader(self, shard: int):
        """The open reader of a shard; past the limit the oldest is closed."""
        reader = self._readers.get(shard)
        if reader is None:
            if len(self._readers) == _OPEN_FILES:
                self._readers.pop(next(iter(self._readers))).close()
            reader = self._readers[shard] = self._open(shard)
        return reader

    def _open(self, shard: int):
        from array_record.python.array_record_module import ArrayRecordReader

        return ArrayRecordReader(
            str(self._path(shard)),
            "readahead_buffer_size:0,max_parallelism:0",  # for random access
            file_reader_buffer_size=4096,
        )

    def _path(self, shard: int) -> Path:
        count = len(self._ends)
        return self.directory / prepared_directory.shard_name(self.split, shard, count)


def model_inputs(lengths: np.ndarray, layout: Layout) -> dict[str, np.ndarray]:
    """Everything that follows from the segment lengths [B, S, 2] of packed rows."""
    L = layout.sequence_length
    sizes = lengths.sum(2)
    starts = np.cumsum(sizes, axis=1) - sizes
    if layout.cls_last:  # a third segment, taken from the first
        cls = (sizes > 0)[:, :, None].astype(lengths.dtype)
        lengths = np.concatenate([lengths[..., :1] - cls, lengths[..., 1:], cls], 2)
    B, S, T = lengths.shape
    # A row is a run of T S segments and its padding; each value is constant on a run.
    used = sizes.sum(1, keepdims=True)
    runs = np.concatenate([lengths.reshape(B, T * S), L - used], axis=1).ravel()

    def spread(values: np.ndarray) -> np.ndarray:
        values = np.broadcast_to(values, (B, T * S + 1)).astype(np.int32)
        return np.repeat(values.ravel(), runs).reshape(B, L)

    number = np.arange(T, T * S + T) // T
    run_starts = np.concatenate([np.repeat(starts, T, axis=1), used], axis=1)
    cls_positions = starts + sizes - 1 if layout.cls_last else starts
    return {
        "attention_mask": spread(np.append(number, 0)),
        "token_type_ids": spread(np.append(np.arange(T * S) % T, 0)),
        "position_ids": np.arange(L, dtype=np.int32) - spread(run_starts),
        "cls_positions": np.where(sizes > 0, cls_positions, 0).astype(np.int32),
    }
