"""The prepared directory: the names in it, what it says of itself, how two compare."""

import json
import shutil
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

import numpy as np

from bert_jax import files
from bert_jax.data.records import Layout

METADATA = "prepared.json"
UNIGRAMS = "unigrams.npy"
DATASET = "bert_pretraining"  # the name TFDS knows it by
SPLITS = ("train", "eval")


@dataclass
class Counts:
    """What a split holds. `tokens` counts the text, `real_tokens` what rows hold of it
    with special tokens (padding excluded), out of `positions`; `ones` of `labelled`
    pairs have label 1."""

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
            f"{split}: {c.documents:,} documents, {c.sentences:,} sentences, "
            f"{c.tokens:,} tokens -> {c.sequences:,} sequences in {c.rows:,} rows, "
            f"{c.efficiency:.1%} real tokens"
            + (f", label 1 in {c.label_rate:.1%} of pairs" if c.labelled else "")
            for split, c in self.splits.items()
        )


def shard_name(split: str, number: int, count: int) -> str:
    return f"{DATASET}-{split}.array_record-{number:05}-of-{count:05}"


def read_metadata(directory: Path) -> dict:
    """The directory's own description, or an error that says what it lacks."""
    path = Path(directory) / METADATA
    if not path.is_file():
        raise ValueError(
            f"{directory} is not a prepared dataset: {METADATA} is missing; "
            "make it with `bert-jax prepare`"
        )
    return json.loads(path.read_text())


def statistics(metadata: dict) -> Statistics:
    counts = {s: Counts(**m["counts"]) for s, m in metadata["splits"].items()}
    return Statistics(counts)


def refuse_other(where: Path, there: dict, here: dict) -> None:
    """Raises, naming what differs, unless `where` was made from the same stamp."""
    files.refuse_changes(
        there,
        here,
        f"{where} was prepared from something else",
        "delete that directory or choose another one",
    )


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
                refuse_other(self.path, there, self.stamp)
            files.write_json(said, self.stamp)
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
        files.write_json(done, asdict(counts))

    def finish(self, layout: Layout, vocab_size: int) -> dict:
        """Names the shards as TFDS wants, describes them, and moves all into place."""
        whole = self.path / "whole"
        whole.mkdir(exist_ok=True)
        splits = {s: self._collect(whole, s) for s in SPLITS}
        if not splits["train"]["counts"]["rows"]:
            self.discard()
            raise ValueError("the text holds no token of the vocabulary; is it empty?")
        splits = {s: m for s, m in splits.items() if m["counts"]["rows"]}
        metadata = {"stamp": self.stamp, "layout": asdict(layout), "splits": splits}
        np.save(whole / UNIGRAMS, self._unigrams(vocab_size))
        _write_tfds_metadata(whole, layout, splits)
        files.write_json(whole / METADATA, metadata)
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
