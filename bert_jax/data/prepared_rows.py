"""A directory of prepared rows: written shard by shard, read by row number."""

import contextlib
import json
import os
import shutil
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from pathlib import Path

import numpy as np

from bert_jax import files
from bert_jax.data import lock, optional
from bert_jax.data.records import Layout
from bert_jax.files import counted

ARRAY_RECORD = "array_record.python.array_record_module"
METADATA = "prepared.json"
UNIGRAMS = "unigrams.npy"
DATASET = "bert_pretraining"  # the name TFDS knows it by
SPLITS = ("train", "eval")


@dataclass
class Counts:
    """Counts of a split.

    `tokens` counts the text, `real_tokens` the tokens in rows, special ones included
    and padding excluded, out of `positions`; `ones` of `labelled` pairs have label 1.
    """

    documents: int = 0
    sentences: int = 0
    tokens: int = 0
    sequences: int = 0
    labelled: int = 0
    ones: int = 0
    rows: int = 0
    real_tokens: int = 0
    positions: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        names = [f.name for f in fields(self)]
        return Counts(*(getattr(self, n) + getattr(other, n) for n in names))

    @property
    def efficiency(self) -> float:
        return self.real_tokens / max(self.positions, 1)

    @property
    def label_rate(self) -> float:
        return self.ones / max(self.labelled, 1)


@dataclass
class Statistics:
    """Counts of each split."""

    splits: dict[str, Counts] = field(default_factory=dict)

    def __str__(self) -> str:
        return "\n".join(
            f"{split}: {counted(c.documents, 'document')}, "
            f"{counted(c.sentences, 'sentence')}, {counted(c.tokens, 'token')} -> "
            f"{counted(c.sequences, 'sequence')} in {counted(c.rows, 'row')}, "
            f"{c.efficiency:.1%} real tokens"
            + (f", label 1 in {c.label_rate:.1%} of pairs" if c.labelled else "")
            for split, c in self.splits.items()
        )


def shard_name(split: str, number: int, count: int) -> str:
    return f"{DATASET}-{split}.array_record-{number:05}-of-{count:05}"


def read_metadata(directory: Path) -> dict:
    """The description that a directory holds of itself."""
    path = files.local_path(directory) / METADATA
    if not path.is_file():
        raise ValueError(
            f"{directory} is not a prepared dataset: {METADATA} is missing; "
            "make it with `bert-jax prepare`"
        )
    return json.loads(path.read_text())


def statistics(metadata: dict) -> Statistics:
    counts = {s: Counts(**m["counts"]) for s, m in metadata["splits"].items()}
    return Statistics(counts)


def check_stamp(directory: Path, there: dict, here: dict) -> None:
    """Raises ValueError with the differences unless both stamps are the same."""
    files.check_unchanged(
        there,
        here,
        f"{directory} was prepared from something else",
        "delete that directory or choose another one",
    )


class Staging:
    """The unfinished `target`; `stamp` describes its text, config and tokenizer."""

    def __init__(self, target: Path, stamp: dict):
        self.target = target = files.local_path(target)
        self.stamp = json.loads(json.dumps(stamp))
        self.path = target.with_name(target.name + ".partial")

    def whole(self) -> Statistics | None:
        """The counts of the target, if it is whole already.

        Raises ValueError for a target that was made from something else.
        """
        if self.target.is_file():
            raise ValueError(f"{self.target} is a file; name a directory")
        if not (self.target.is_dir() and any(self.target.iterdir())):
            return None
        metadata = read_metadata(self.target)
        check_stamp(self.target, metadata["stamp"], self.stamp)
        return statistics(metadata)

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        """Makes the directory, or continues in that of a run that was interrupted.

        Raises ValueError where another process prepares the same target.
        """
        stamp = self.path / "stamp.json"
        with lock.locked(files.make_directory(self.path)):
            if stamp.exists() and self.finished():
                there = json.loads(stamp.read_text())
                check_stamp(self.path, there, self.stamp)
            files.write_json(stamp, self.stamp)
            yield

    def finished(self) -> list[Path]:
        return sorted(self.path.glob("*-done.json"))

    def has(self, split: str, index: int) -> bool:
        return (self.path / f"{split}-{index:05}-done.json").exists()

    def discard_if_empty(self) -> None:
        if not self.finished():
            self.discard()

    def discard(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)

    def write(
        self, split: str, index: int, records: np.ndarray, counts: Counts, unigrams
    ) -> None:
        """Writes one shard; only its last file makes it count as finished."""
        name = self.path / f"{split}-{index:05}"
        _write_array_record(name.with_suffix(".array_record"), records)
        with files.new_file(name.with_suffix(".npy"), "wb") as file:
            np.save(file, unigrams)
        done = name.with_name(name.name + "-done.json")
        files.write_json(done, asdict(counts))

    def finish(self, layout: Layout, vocab_size: int) -> dict:
        """Names the shards as TFDS wants, describes them, and moves all into place."""
        whole = self.path / "whole"
        files.make_directory(whole)
        splits = {s: self._collect(whole, s) for s in SPLITS}
        if not splits["train"]["counts"]["rows"]:
            self.discard()
            raise ValueError("the text holds no token of the vocabulary; is it empty?")
        splits = {s: m for s, m in splits.items() if m["counts"]["rows"]}
        metadata = {"stamp": self.stamp, "layout": asdict(layout), "splits": splits}
        with files.new_file(whole / UNIGRAMS, "wb") as file:
            np.save(file, self._unigrams(vocab_size))
        _write_tfds_metadata(whole, layout, splits)
        files.write_json(whole / METADATA, metadata)
        with files.write_errors(self.target, whole):
            if self.target.exists():
                self.target.rmdir()  # an empty directory
            whole.rename(self.target)
        self.discard()
        return metadata

    def _collect(self, whole: Path, split: str) -> dict:
        """Moves the shards of a split; one that was moved before a kill stays moved."""
        total, lengths, size = Counts(), [], 0
        done = [p for p in self.finished() if p.name.startswith(split)]
        counts = [Counts(**json.loads(p.read_text())) for p in done]
        filled = [(p, c) for p, c in zip(done, counts, strict=True) if c.rows]
        for number, (path, count) in enumerate(filled):
            name = path.name.replace("-done.json", ".array_record")
            final = whole / shard_name(split, number, len(filled))
            if not final.exists():
                (self.path / name).rename(final)
            total, size = total + count, size + final.stat().st_size
            lengths.append(count.rows)
        return {"counts": asdict(total), "shard_lengths": lengths, "bytes": size}

    def _unigrams(self, vocab_size: int) -> np.ndarray:
        """The count of each token in the rows of the train split: int64 [V]."""
        total = np.zeros(vocab_size, np.int64)
        for path in self.path.glob("train-*.npy"):
            total += np.load(path)
        return total


def _write_array_record(path: Path, records: np.ndarray) -> None:
    array_record = optional.require(ARRAY_RECORD, "writing prepared rows")
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with files.write_errors(path, draft):
        try:
            # One record a group: what random access wants, and what TFDS writes.
            writer = array_record.ArrayRecordWriter(str(draft), "group_size:1")
            for record in records:
                writer.write(record.tobytes())
            writer.close()
        except RuntimeError as error:
            draft.unlink(missing_ok=True)
            raise OSError(str(error)[:150]) from None
        draft.rename(path)


def _write_tfds_metadata(directory: Path, layout: Layout, splits: dict) -> None:
    """features.json and dataset_info.json, by TFDS itself (which loads no TensorFlow
    for this)."""
    tfds = optional.require("tensorflow_datasets", "writing prepared rows")
    features = {
        name: tfds.features.Tensor(shape=shape, dtype=np.dtype(dtype), encoding="bytes")
        for name, (dtype, shape) in layout.features.items()
    }
    template = tfds.core.ShardedFileTemplate(
        data_dir=directory,
        dataset_name=DATASET,
        filetype_suffix="array_record",
    )
    infos = [
        tfds.core.SplitInfo(
            name=split,
            shard_lengths=meta["shard_lengths"],
            num_bytes=meta["bytes"],
            filename_template=template.replace(split=split),
        )
        for split, meta in splits.items()
    ]
    tfds.folder_dataset.write_metadata(
        data_dir=directory,
        features=features,
        split_infos=infos,
        description="Packed rows of token ids for pre-training an encoder.",
        check_data=False,
    )


# Files that a process may open beside the shards of a split.
_OTHER_FILES = 512


def open_file_limit(wanted: int) -> int:
    """The number of `wanted` shards that may be open at once.

    The process's own limit, usually 1,024, is raised as far as the system allows.
    """
    import resource  # not on Windows

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + _OTHER_FILES
    if 0 <= soft < needed:  # -1 is no limit
        with contextlib.suppress(ValueError, OSError):
            raised = needed if hard < 0 else min(needed, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
            soft = raised
    return wanted if soft < 0 else min(wanted, max(soft - _OTHER_FILES, soft // 2))


class PreparedRows:
    """One split of a prepared directory, random access by row.

    `gather` needs neither TensorFlow nor JAX. `layout` holds L and S, `counts`
    describes the split, `stamp` the text, config and tokenizer it was made from. Raises
    ValueError for a damaged directory, and for a missing split.

    >>> from bert_jax.data.preparation import prepare
    >>> from bert_jax.data.records import RowConfig
    >>> recipe = RowConfig(sequence_length=20, sequences_per_row=2)
    >>> _ = prepare(["text.txt"], "rows", tokenizer=tokenizer, recipe=recipe)
    >>> batch = PreparedRows("rows").gather(np.array([3, 0]))
    >>> batch["input_ids"].shape, batch["pair_labels"].shape  # B, L and B, S
    ((2, 20), (2, 2))
    """

    def __init__(self, directory: str | os.PathLike, split: str = "train"):
        self.directory, self.split = files.local_path(directory), split
        with files.readable_errors(self.directory, "delete it and prepare it again"):
            metadata = read_metadata(self.directory)
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

    @property
    def max_length(self) -> int:
        """The length of every row in tokens."""
        return self.layout.sequence_length

    @property
    def sequences_per_row(self) -> int:
        """The largest number of sequences that share a row."""
        return self.layout.sequences_per_row

    @cached_property
    def unigrams(self) -> np.ndarray:
        """The count of each token in the train split, special ones 0: int64 [V]."""
        path = self.directory / UNIGRAMS
        try:
            return np.load(path)
        except Exception as error:  # of many kinds, SyntaxError among them
            raise ValueError(
                f"{path} is damaged ({type(error).__name__}); delete the directory and "
                "prepare it again"
            ) from error

    def gather(self, indices: np.ndarray) -> dict[str, np.ndarray]:
        """Rows `indices` [B] as model inputs, all int32.

        Returns:
            `input_ids`, `attention_mask` (1, 1, 2, 2, …: the number of the sequence in
            its row; 0 is padding), `token_type_ids` and `position_ids` (counted from
            each sequence's start) [B, L]; `cls_positions` (0 where absent) and
            `pair_labels` (-1 where absent) [B, S].

        Raises:
            IndexError: for row numbers outside the split.
            ValueError: for damaged rows.
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
            raise IndexError(f"rows {indices} are not all within the {len(self)} rows")
        shards = np.searchsorted(self._ends, indices, side="right")
        places = indices - np.concatenate([[0], self._ends])[shards]
        with self._lock:
            records = map(self._read_one, shards.tolist(), places.tolist())
            joined = b"".join(records)
        if len(joined) != len(indices) * self.layout.dtype.itemsize:
            raise ValueError(
                f"{self.directory} holds records of another size than its "
                f"{METADATA} says; delete it and prepare it again"
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
                "delete the prepared directory and make it again"
            ) from error

    def _reader(self, shard: int):
        """The open reader of a shard; past the limit the oldest is closed."""
        reader = self._readers.get(shard)
        if reader is None:
            if len(self._readers) == self._limit:
                self._readers.pop(next(iter(self._readers))).close()
            reader = self._readers[shard] = self._open(shard)
        return reader

    @cached_property
    def _limit(self) -> int:
        return open_file_limit(len(self._ends))

    def _open(self, shard: int):
        array_record = optional.require(ARRAY_RECORD, "reading prepared rows")
        return array_record.ArrayRecordReader(
            str(self._path(shard)),
            "readahead_buffer_size:0,max_parallelism:0",  # for random access
            file_reader_buffer_size=4096,
        )

    def _path(self, shard: int) -> Path:
        count = len(self._ends)
        return self.directory / shard_name(self.split, shard, count)


def model_inputs(lengths: np.ndarray, layout: Layout) -> dict[str, np.ndarray]:
    """The model inputs that follow from the segment lengths [B, S, 2] of rows."""
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
