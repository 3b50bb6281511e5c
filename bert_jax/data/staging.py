"""Where a prepared directory grows until it is whole: `NAME.partial` beside `NAME`.

Each finished shard is a file, its token counts, and last a JSON that says it is done;
a run that was killed finds them and goes on. At the end the directory moves to its
final name in one rename, so that the final name never stands for something partial.
"""

import json
import shutil
from dataclasses import asdict
from pathlib import Path

import numpy as np

from bert_jax import stamps
from bert_jax.data import prepared
from bert_jax.data.prepared import Counts
from bert_jax.data.records import Layout


class Staging:
    """The unfinished form of `target`; `stamp` says from what and how it is made."""

    def __init__(self, target: Path, stamp: dict):
        self.target = target
        self.stamp = json.loads(json.dumps(stamp))
        self.path = target.with_name(target.name + ".partial")

    def open(self) -> None:
        """Makes the directory, or goes on with the one of an interrupted run."""
        said = self.path / "stamp.json"
        try:
            if self.target.exists():
                self.target.rmdir()  # an empty directory; a file is refused
            self.path.mkdir(parents=True, exist_ok=True)
            if said.exists() and self.finished():
                there = json.loads(said.read_text())
                prepared.refuse_other(self.path, there, self.stamp)
            stamps.write_json(said, self.stamp)
        except OSError as error:
            raise ValueError(
                f"cannot write to {self.target}: {error}; choose another directory"
            ) from error

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
        np.save(name.with_suffix(".npy"), unigrams)
        done = name.with_name(name.name + "-done.json")
        stamps.write_json(done, asdict(counts))

    def finish(self, layout: Layout, vocab_size: int) -> dict:
        """Names the shards as TFDS wants, describes them, and moves all into place."""
        whole = self.path / "whole"
        whole.mkdir(exist_ok=True)
        splits = {s: self._collect(whole, s) for s in prepared.SPLITS}
        if not splits["train"]["counts"]["rows"]:
            self.discard()
            raise ValueError("the text holds no token of the vocabulary; is it empty?")
        splits = {s: m for s, m in splits.items() if m["counts"]["rows"]}
        metadata = {"stamp": self.stamp, "layout": asdict(layout), "splits": splits}
        np.save(whole / prepared.UNIGRAMS, self._unigrams(vocab_size))
        _write_tfds_metadata(whole, layout, splits)
        stamps.write_json(whole / prepared.METADATA, metadata)
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
            final = whole / prepared.shard_name(split, number, len(filled))
            if not final.exists():
                (self.path / name).rename(final)
            total, size = total + count, size + final.stat().st_size
            lengths.append(count.rows)
        return {"counts": asdict(total), "shard_lengths": lengths, "bytes": size}

    def _unigrams(self, vocab_size: int) -> np.ndarray:
        """How often each token stands in the rows of the train split: int64 [V]."""
        total = np.zeros(vocab_size, np.int64)
        for path in self.path.glob("train-*.npy"):
            total += np.load(path)
        return total


def _write_array_record(path: Path, records: np.ndarray) -> None:
    from array_record.python.array_record_module import ArrayRecordWriter

    draft = path.with_name(path.name + ".tmp")
    # One record a group: what random access wants, and what TFDS writes.
    writer = ArrayRecordWriter(str(draft), "group_size:1")
    for record in records:
        writer.write(record.tobytes())
    writer.close()
    draft.rename(path)


def _write_tfds_metadata(directory: Path, layout: Layout, splits: dict) -> None:
    """features.json and dataset_info.json, by TFDS itself (which loads no TensorFlow
    for this)."""
    import tensorflow_datasets as tfds

    features = {
        name: tfds.features.Tensor(shape=shape, dtype=np.dtype(dtype), encoding="bytes")
        for name, (dtype, shape) in layout.features.items()
    }
    template = tfds.core.ShardedFileTemplate(
        data_dir=directory,
        dataset_name=prepared.DATASET,
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
