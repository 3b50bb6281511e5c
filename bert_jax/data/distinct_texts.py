"""Batches in which no text is twice, for losses that take other rows as negatives."""

import numpy as np

# The number of no text.
NONE = -1


def separated(batches: np.ndarray, texts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Batches whose rows share no text, by as few swaps of rows as it takes.

    A row with a text of an earlier row of its batch is swapped with one of the nearest
    batch that has neither of its texts.

    Args:
      batches: places of rows `[n, B]`.
      texts: numbers of the texts of the row at each place, `[n * B, C]`; `NONE` for a
        text that is missing.

    Returns:
      Batches `[n, B]`, and bool `[n, B]`: False for a row that could not be separated
      from an earlier one, because its text is in more rows than there are batches.

    >>> texts = np.array([[1, 2], [1, 3], [4, 5], [6, 7]])
    >>> separated(np.array([[0, 1], [2, 3]]), texts)[0]
    array([[0, 2],
           [1, 3]])
    """
    batches, alone = batches.copy(), np.ones(batches.shape, bool)
    content = [_count(texts[rows]) for rows in batches]
    near = np.arange(len(batches))
    for number, rows in enumerate(batches):
        for place in _repeats(texts[rows]):
            row = _texts(texts, rows[place])
            if all(content[number][text] == 1 for text in row):
                continue  # the other one went away before
            others = near[np.argsort(np.abs(near - number), kind="stable")][1:]
            for other in others:
                if partner := _partner(batches, content, texts, number, other, row):
                    _swap(batches, content, texts, (number, place), (other, *partner))
                    break
            else:
                alone[number, place] = False
    return batches, alone


def _repeats(texts: np.ndarray) -> list[int]:
    """The rows `[B, C]` that have a text of an earlier row, in order."""
    flat = texts.ravel()
    owners = np.repeat(np.arange(len(texts)), texts.shape[1])
    _, first, inverse = np.unique(flat, return_index=True, return_inverse=True)
    later = (owners[first][inverse] != owners) & (flat != NONE)
    return np.unique(owners[later]).tolist()


def _count(texts: np.ndarray) -> dict[int, int]:
    """The number of rows `[B, C]` that each text is in."""
    counts: dict[int, int] = {}
    for row in texts.tolist():
        for text in {*row} - {NONE}:
            counts[text] = counts.get(text, 0) + 1
    return counts


def _texts(texts: np.ndarray, row: int) -> set[int]:
    return {*texts[row].tolist()} - {NONE}


def _partner(batches, content, texts, number, other, row):
    """The place `(j,)` of a row of batch `other` that can be swapped for `row`."""
    if any(content[other].get(text) for text in row):
        return None
    for place, candidate in enumerate(batches[other]):
        theirs = _texts(texts, candidate)
        if not any(content[number].get(x, 0) > (x in row) for x in theirs):
            return (place,)
    return None


def _swap(batches, content, texts, one, other):
    """Swaps two rows, at (batch, place) each."""
    for (number, place), (into, _) in ((one, other), (other, one)):
        for text in _texts(texts, batches[number, place]):
            content[number][text] -= 1
            content[into][text] = content[into].get(text, 0) + 1
    batches[one], batches[other] = batches[other], batches[one]
