"""How text becomes rows, as plain values that a config holds and a flag may change."""

from dataclasses import dataclass

from bert_jax.data.records import Layout

PAIRS = ("next", "order", "none")


@dataclass
class RowConfig:
    """How text becomes rows.

    Args:
        sequence_length: positions in a row, and the most a sequence takes.
        pairs: "next" (Google's next sentence), "order" (ALBERT) or "none" (RoBERTa).
        short_seq_prob: share of documents made into shorter pairs.
        dupe_factor: how often the training text is paired anew.
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
        """Raises ValueError with the field, its value and what it may be."""
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
