"""Files of texts with their translations, and the words in them."""

import collections
import csv
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

Pair = tuple[str, str]

# Letters and digits together; every other sign alone. Nearly BERT's own splitting.
WORD = re.compile(r"[^\W_]+|[^\w\s]|_")


def read_pairs(
    path: str | Path, text: str | None = None, translation: str | None = None
) -> list[Pair]:
    """A file of lines of two columns, with a tab between them.

    Args:
      path: of the file; a cell that holds a tab is in quotes.
      text, translation: names of the columns in the first line; None: every line is a
        pair, the text first.

    Raises:
      ValueError: with the line that is no pair, and for a file without a pair.
    """
    try:
        lines = Path(path).read_text("utf-8-sig").splitlines()
    except (OSError, UnicodeError) as error:
        raise ValueError(f"{path} cannot be read ({error}); check the path") from None
    rows = [_cells(path, number, line) for number, line in enumerate(lines, 1)]
    if text is not None:
        names = rows.pop(0) if rows else ()
        for name in (text, translation):
            if name not in names:
                raise ValueError(
                    f"{path} has no column {name!r}; it has {', '.join(names)}"
                )
        order = names.index(text), names.index(translation)
        rows = [(row[order[0]], row[order[1]]) for row in rows]
    if not rows:
        raise ValueError(f"{path} holds no line; give it some")
    return rows


def _cells(path, number, line) -> Pair:
    cells = line.split("\t")
    if len(cells) != 2:
        cells = next(csv.reader([line], delimiter="\t"), [])
    if len(cells) != 2 or not all(cell.strip() for cell in cells):
        raise ValueError(
            f"{path}, line {number} has {len(cells)} columns, or an empty one; "
            "write a text, a tab and its translation"
        )
    return cells[0], cells[1]


def words(text: str) -> list[str]:
    """The words and signs of a text in lower case.

    >>> words("A child's T-shirt.")
    ['a', 'child', "'", 's', 't', '-', 'shirt', '.']
    """
    return WORD.findall(text.lower())


def frequent_words(pairs: Sequence[Pair], min_count: int) -> list[str]:
    """The words with so many occurrences on one side or more, sorted."""
    sides: Iterable = zip(*pairs, strict=True)
    counts = [
        collections.Counter(word for text in side for word in words(text))
        for side in sides
    ]
    return sorted({w for side in counts for w, n in side.items() if n >= min_count})
