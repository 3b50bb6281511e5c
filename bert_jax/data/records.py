"""Packed rows as records of constant size, and the rules by which text becomes rows.

A record is a serialized `tf.train.Example` of three features, each the raw bytes of an
array: `input_ids` [L] (padded), `lengths` [S, 2] (segment A with its [CLS] and [SEP],
segment B with its [SEP]; 0 where absent) and `pair_labels` [S] (-1 where absent). All
sizes are constant, so the protocol buffer's framing is constant too: a NumPy dtype
with the framing as fields reads and writes whole blocks of records at once.
Compression takes care of the padding.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bert_jax.data.sequences import Sequences


@dataclass(frozen=True)
class Layout:
    """The shape of a row: at most S sequences in L positions, ids of `id_dtype`.

    [CLS] begins a sequence, or ends it with `cls_last`.
    """

    sequence_length: int
    sequences_per_row: int
    id_dtype: str
    cls_last: bool = False

    @property
    def features(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Name -> (dtype, shape), in the order of a record."""
        return {
            "input_ids": (self.id_dtype, (self.sequence_length,)),
            "lengths": ("uint16", (self.sequences_per_row, 2)),
            "pair_labels": ("int8", (self.sequences_per_row,)),
        }

    @cached_property
    def dtype(self) -> np.dtype:
        return self._blank.dtype

    def blank(self, count: int) -> np.ndarray:
        """`count` records with framing, all values zero."""
        return np.repeat(self._blank, count)

    @cached_property
    def _blank(self) -> np.ndarray:
        framing, fields = [], []
        for name, (dtype, shape) in self.features.items():
            little = np.dtype(dtype).newbyteorder("<")
            size = little.itemsize * int(np.prod(shape))
            framing.append(_feature_framing(name.encode(), size))
            fields.append((name, little, shape))
        total = sum(map(len, framing)) + np.dtype(fields).itemsize
        framing[0] = _prefix(1, total) + framing[0]
        frames = [(f"framing_{i}", f"V{len(f)}") for i, f in enumerate(framing)]
        both = [
            field for couple in zip(frames, fields, strict=True) for field in couple
        ]
        blank = np.zeros(1, both)
        for (name, _), frame in zip(frames, framing, strict=True):
            blank[name] = np.void(frame)
        return blank


def _prefix(field: int, size: int) -> bytes:
    """The bytes before `size` bytes of protocol buffer field number `field`."""
    out = [field << 3 | 2]
    while size > 0x7F:
        out.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*out, size])


def _feature_framing(name: bytes, size: int) -> bytes:
    """Example.features' map entry {name: Feature(bytes_list=[size bytes])}, up to the
    bytes themselves."""
    value = _prefix(1, size)
    value = _prefix(1, len(value) + size) + value
    key = _prefix(1, len(name)) + name
    value = _prefix(2, len(value) + size) + value
    return _prefix(1, len(key) + len(value) + size) + key + value


def fill_rows(
    layout: Layout,
    sequences: Sequences,
    rows: np.ndarray,
    *,
    cls_id: int,
    sep_id: int,
    pad_id: int,
) -> np.ndarray:
    """Records [R] of the sequences; `rows` [N] are the rows they belong to."""
    order = np.argsort(rows, kind="stable")
    rows, lengths = rows[order], sequences.lengths()[order]
    first = np.searchsorted(rows, np.arange(rows.max(initial=-1) + 1))
    slots = np.arange(len(rows)) - first[rows]
    records = layout.blank(len(first))
    records["pair_labels"] = -1
    records["lengths"][rows, slots] = lengths
    records["pair_labels"][rows, slots] = sequences.labels[order]
    ids = np.full((len(first), layout.sequence_length), pad_id, layout.id_dtype)
    used = records["lengths"].sum((1, 2), dtype=np.int64)
    ids[np.arange(layout.sequence_length) < used[:, None]] = _joined(
        sequences.ids, sequences.spans[order], cls_id, sep_id, layout.cls_last
    )
    records["input_ids"] = ids
    return records


def _joined(
    ids: np.ndarray, spans: np.ndarray, cls_id: int, sep_id: int, cls_last: bool
) -> np.ndarray:
    """[CLS] A [SEP] B [SEP] of all sequences, or with [CLS] last, one after another."""
    source = np.concatenate([ids, np.array([cls_id, sep_id], ids.dtype)])
    cls, sep = len(ids), len(ids) + 1
    sizes = spans[:, :, 1] - spans[:, :, 0]
    one = np.ones(len(spans), np.int64)
    starts = [cls * one, spans[:, 0, 0], sep * one, spans[:, 1, 0], sep * one]
    counts = [one, sizes[:, 0], one, sizes[:, 1], (sizes[:, 1] > 0).astype(np.int64)]
    if cls_last:
        starts, counts = starts[1:] + starts[:1], counts[1:] + counts[:1]
    first, count = np.stack(starts, 1).ravel(), np.stack(counts, 1).ravel()
    ends = np.cumsum(count)
    return source[np.arange(ends[-1:].sum()) + np.repeat(first - ends + count, count)]


PAIRS = ("next", "order", "none")


@dataclass
class RowConfig:
    """The rules by which text becomes rows.

    Args:
        sequence_length: positions in a row, and the most a sequence takes.
        pairs: "next" (Google's next sentence), "order" (ALBERT) or "none" (RoBERTa).
        short_seq_prob: share of documents made into shorter pairs.
        dupe_factor: times that the training text is paired.
        pack: several sequences in a row; otherwise one.
        sequences_per_row: the most that share a row.
        cls_last: [CLS] ends a sequence, with a type of its own (XLNet).
        held_out: share of documents set aside for the eval split.
        seed: of pairs, cuts and the order of rows.

    >>> RowConfig(sequence_length=4).validate()
    Traceback (most recent call last):
    ValueError: recipe.sequence_length=4 must be from 5 to 65535
    """

    sequence_length: int = 128
    pairs: str = "next"
    short_seq_prob: float = 0.1
    dupe_factor: int = 1
    pack: bool = True
    sequences_per_row: int = 8
    cls_last: bool = False
    held_out: float = 0.05
    seed: int = 0

    def validate(self) -> None:
        """Raises ValueError with the field, its value and the allowed values."""
        least = 3 if self.pairs == "none" else 5  # [CLS] a [SEP] b [SEP]
        rules = {
            "pairs": (self.pairs in PAIRS, f"one of {', '.join(PAIRS)}"),
            "sequence_length": (
                least <= self.sequence_length <= 65535,
                f"from {least} to 65535",
            ),
            "short_seq_prob": (0 <= self.short_seq_prob <= 1, "from 0 to 1"),
            "dupe_factor": (self.dupe_factor >= 1, "1 or more"),
            "sequences_per_row": (self.sequences_per_row >= 1, "1 or more"),
            "held_out": (0 <= self.held_out < 1, "0 or more and below 1"),
            "seed": (self.seed >= 0, "0 or more"),
        }
        for name, (holds, allowed) in rules.items():
            if not holds:
                value = getattr(self, name)
                raise ValueError(f"recipe.{name}={value!r} must be {allowed}")

    def layout(self, vocab_size: int) -> Layout:
        """The shape of the rows; ids above 65,535 take four bytes."""
        per_row = self.sequences_per_row if self.pack else 1
        ids = "uint16" if vocab_size <= 1 << 16 else "int32"
        return Layout(self.sequence_length, per_row, ids, self.cls_last)
