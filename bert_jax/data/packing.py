"""Several short sequences in one row: best-fit decreasing over a histogram of room."""

import numpy as np


def pack(lengths: np.ndarray, row_length: int, per_row: int) -> np.ndarray:
    """The row [N] of each sequence of `lengths` [N]: rows hold at most `row_length`
    tokens and `per_row` sequences.

    The longest sequence goes first, into the fullest row that still takes it. Rows are
    kept by their room, and a bit per room tells in one step which is the tightest, so
    the cost is that of sorting. The result depends on the lengths alone.
    """
    too_long = int(lengths.max(initial=0))
    if too_long > row_length:
        raise ValueError(f"a sequence of {too_long} exceeds rows of {row_length}")
    rows = np.empty(len(lengths), np.int64)
    open_rows: list[list[int]] = [[] for _ in range(row_length + 1)]
    held: list[int] = []  # sequences in each row
    rooms = 0  # bit r is set while some open row has room r
    for i in np.argsort(-lengths, kind="stable").tolist():
        length = int(lengths[i])
        fitting = rooms >> length
        if fitting:
            room = length + (fitting & -fitting).bit_length() - 1
            row = open_rows[room].pop()
            if not open_rows[room]:
                rooms ^= 1 << room
        else:
            row, room = len(held), row_length
            held.append(0)
        rows[i] = row
        held[row] += 1
        if held[row] < per_row:
            open_rows[room - length].append(row)
            rooms |= 1 << (room - length)
    return rows


def efficiency(lengths: np.ndarray, rows: np.ndarray, row_length: int) -> float:
    """Real tokens per position of the packed rows."""
    return float(lengths.sum()) / (row_length * len(np.unique(rows)))
