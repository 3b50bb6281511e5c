"""The prepared directory: the names in it, what it says of itself, how two compare."""

import json
from dataclasses import dataclass, field, fields
from pathlib import Path

from bert_jax import stamps

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
    stamps.refuse_changes(
        there,
        here,
        f"{where} was prepared from something else",
        "delete that directory or choose another one",
    )
