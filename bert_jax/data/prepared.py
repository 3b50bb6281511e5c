"""The prepared directory: the names in it, what it says of itself, how two compare."""

import json
from dataclasses import dataclass, field, fields
from pathlib import Path

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
            f"{c.efficiency:.1%} real tokens, label 1 in {c.label_rate:.1%} of pairs"
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


def write_json(path: Path, content: dict) -> None:
    """Whole or not at all: readers never see half a file."""
    draft = path.with_name(path.name + ".tmp")
    draft.write_text(json.dumps(content, indent=1))
    draft.replace(path)


def statistics(metadata: dict) -> Statistics:
    counts = {s: Counts(**m["counts"]) for s, m in metadata["splits"].items()}
    return Statistics(counts)


def differences(there: dict, here: dict) -> list[str]:
    """`field: x there, y here`, for every field of two stamps that is not the same."""
    there, here = _flat(there), _flat(here)
    return [
        f"{name}: {there.get(name, 'absent')} there, {here.get(name, 'absent')} here"
        for name in sorted(there | here)
        if there.get(name) != here.get(name)
    ]


def _flat(tree: dict, prefix: str = "") -> dict:
    out = {}
    for key, value in tree.items():
        inner = isinstance(value, dict)
        out |= _flat(value, f"{prefix}{key}.") if inner else {prefix + key: value}
    return out


def refuse_other(where: Path, there: dict, here: dict) -> None:
    """Raises, naming what differs, unless `where` was made from the same stamp."""
    found = differences(there, here)
    if found:
        more = f" (and {len(found) - 4} more)" if len(found) > 4 else ""
        raise ValueError(
            f"{where} was prepared from something else: {'; '.join(found[:4])}{more}\n"
            "delete that directory or choose another one"
        )
