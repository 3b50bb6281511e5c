"""Rows: sequences of pieces between special tokens, cut and padded to one length."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import tokenizers

# The pieces of a long sequence that stay: the first ones, the last ones, or a quarter
# from the beginning and the rest from the end.
TRUNCATIONS = ("head", "tail", "head_tail")


@dataclasses.dataclass(frozen=True)
class Slot:
    """One place of a row: a special token, or the whole of sequence 0 or 1."""

    token_id: int
    sequence: int | None
    type_id: int


@dataclasses.dataclass(frozen=True)
class Row:
    """One row before padding: ids, token types and character spans."""

    ids: list[int]
    types: list[int]
    spans: list[tuple[int, int]]


def layout(backend: tokenizers.Tokenizer, sequences: int) -> list[Slot]:
    """The special tokens around one sequence or two, read off a short row."""
    probe = backend.encode("a", "a" if sequences == 2 else None)
    slots, seen = [], set()
    columns = zip(probe.ids, probe.sequence_ids, probe.type_ids, strict=True)
    for token_id, sequence, type_id in columns:
        if sequence is None or sequence not in seen:
            slots.append(Slot(token_id, sequence, type_id))
            seen.add(sequence)
    return slots


def assemble(
    parts: Sequence[tokenizers.Encoding],
    slots: list[Slot],
    budget: int | None,
    truncation: str = "head",
) -> Row:
    """One row, its sequences cut until they fit into `budget` pieces together."""
    lengths = truncated_lengths([len(part) for part in parts], budget)
    row = Row([], [], [])
    for slot in slots:
        if slot.sequence is None:
            ids, spans = [slot.token_id], [(0, 0)]
        else:
            part, n = parts[slot.sequence], lengths[slot.sequence]
            first, last = stays(n, truncation)
            start = len(part) - last
            ids = part.ids[:first] + part.ids[start:]
            spans = part.offsets[:first] + part.offsets[start:]
        row.ids.extend(ids)
        row.types.extend([slot.type_id] * len(ids))
        row.spans.extend(spans)
    return row


def stays(count: int, truncation: str) -> tuple[int, int]:
    """The pieces that stay of a sequence cut to `count`: at its beginning and its end.

    "head_tail" is that of Sun et al., 2019, section 5.3: 128 and 382 of 510.
    """
    if truncation not in TRUNCATIONS:
        raise ValueError(
            f"truncation={truncation!r} is unknown; choose one of "
            f"{', '.join(TRUNCATIONS)}"
        )
    first = {"head": count, "tail": 0, "head_tail": -(-count // 4)}[truncation]
    return first, count - first


def truncated_lengths(lengths: Sequence[int], budget: int | None) -> Sequence[int]:
    """The lengths of one sequence or two, cut to share a budget.

    The closed form of Google's loop: while the pair is too long, the longer sequence
    loses its last token, and the second one does on a tie.
    """
    if budget is None:
        return lengths
    if len(lengths) == 1:
        return [min(lengths[0], budget)]
    first, second = lengths
    second = min(second, max(budget // 2, budget - first))
    return [min(first, budget - second), second]


def budget_of(max_length: int | None, specials: int) -> int | None:
    """The pieces that fit into `max_length` beside the special tokens."""
    if max_length is None:
        return None
    if max_length < specials:
        raise ValueError(
            f"max_length={max_length} does not hold the {specials} special tokens of "
            "a row; raise it"
        )
    return max_length - specials


def stack(
    rows: list[Row], padding: bool | int, pad_id: int, pads_left: bool
) -> dict[str, np.ndarray]:
    """int32 arrays [B, L] of rows padded to one length, and `offsets` [B, L, 2]."""
    length = _common_length([len(row.ids) for row in rows], padding)
    shape = len(rows), length
    batch = {
        "input_ids": np.full(shape, pad_id, np.int32),
        "attention_mask": np.zeros(shape, np.int32),
        "token_type_ids": np.zeros(shape, np.int32),
        "offsets": np.zeros((*shape, 2), np.int32),
    }
    for i, row in enumerate(rows):
        n = len(row.ids)
        place = slice(length - n, length) if pads_left else slice(n)
        batch["input_ids"][i, place] = row.ids
        batch["attention_mask"][i, place] = 1
        batch["token_type_ids"][i, place] = row.types
        batch["offsets"][i, place] = np.reshape(row.spans, (n, 2))
    return batch


def _common_length(lengths: list[int], padding: bool | int) -> int:
    longest = max(lengths, default=0)
    if padding is True:
        return longest
    if padding is False:
        if lengths and min(lengths) < longest:
            raise ValueError(
                f"rows of {min(lengths)} and {longest} tokens make no array with "
                "padding=False; pass padding=True or a number"
            )
        return longest
    if longest > padding:
        raise ValueError(
            f"row {lengths.index(longest)} has {longest} tokens, more than "
            f"padding={padding}; pass max_length={padding} too, or raise it"
        )
    return padding
