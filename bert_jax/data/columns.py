"""Which columns of a table are the text, its pair and the label: given or found."""

import dataclasses
from collections.abc import Mapping, Sequence

# A label column has at most so many different values, or numbers only.
FEW = 20

# How people name columns, GLUE's files among them, the likeliest first.
NAMES = {
    "label": "label gold_label score similarity similarity_score is_duplicate quality "
    "class target",
    "text": "text sentence1 question1 premise #1_string question sentence review",
    "pair": "text2 text_pair sentence2 question2 hypothesis #2_string sentence context",
}
KNOWN = {role: names.split() for role, names in NAMES.items()}


@dataclasses.dataclass(frozen=True)
class Columns:
    """Which columns to read: a name, a position from 0, or None to find it.

    `by_width` holds the columns of files without a header by how many they have.
    """

    text: str | int | None = None
    pair: str | int | None = None
    label: str | int | None = None
    by_width: Mapping[int, "Columns"] = dataclasses.field(default_factory=dict)

    @property
    def asked(self) -> dict[str, str | int]:
        """The columns that were given."""
        roles = {role: getattr(self, role) for role in ("text", "pair", "label")}
        return {role: asked for role, asked in roles.items() if asked is not None}


def is_header(first: Sequence[str], rows: Sequence[list], columns: Columns) -> bool:
    """Whether a first row names columns instead of holding values."""
    names = [plain(cell) for cell in first]
    if any(not str(asked).isdigit() for asked in columns.asked.values()):
        return True
    if any(name in known for known in KNOWN.values() for name in names):
        return True
    # A word above a column of numbers is its name.
    rows = [row for row in rows if len(row) == len(first)]
    return any(
        name and not is_number(name) and rows and all(is_number(row[i]) for row in rows)
        for i, name in enumerate(names)
    )


def find(
    path: str,
    columns: Columns,
    names: Sequence[str],
    rows: Sequence[list],
    labelled: bool = True,
) -> dict[str, int]:
    """The places of "text", "label" and perhaps "pair" in `rows`.

    Args:
      path: for errors.
      columns: as given; those of another file where `labelled` is False.
      names, rows: of the columns, and what stands below them.
      labelled: False for a file that need not have a label, nor the other's columns.

    Raises:
      ValueError: where a given column is missing, or none can be told apart.
    """
    asked = columns.asked
    if not labelled:
        asked = {role: name for role, name in asked.items() if name in names}
        if "text" not in asked:
            asked.pop("pair", None)
    found = {role: _given(path, role, name, names) for role, name in asked.items()}
    if "label" not in found and labelled:
        found["label"] = _find_label(path, names, rows, found.values())
    if "text" not in found:
        found |= _find_texts(path, names, rows, found)
    if columns.pair is not None and "pair" not in found:
        _given(path, "pair", columns.pair, names)
    return found


def _given(path, role, asked, names):
    if asked in names:
        return names.index(asked)
    if str(asked).isdigit() and int(asked) < len(names):
        return int(asked)
    raise ValueError(
        f"{path}:1: there is no column {asked!r} for the {role}; it has "
        f"{', '.join(names)}"
    )


def _find_label(path, names, rows, taken):
    free = [i for i in range(len(names)) if i not in taken]
    # Labels mostly stand last.
    like = [i for i in reversed(free) if _is_label(rows, i)]
    found = _known("label", names, free) + like
    if found and len(names) > 1:
        return found[0]
    raise ValueError(
        f"{path}:1: none of the columns {', '.join(names)} looks like a label (few "
        "different values, or numbers); name the label's"
    )


def _find_texts(path, names, rows, found):
    free = [i for i in range(len(names)) if i not in found.values()]
    text = _known("text", names, free)[:1]
    pair = [i for i in _known("pair", names, free) if i not in text][:1]
    if not text:
        prose = [i for i in free if not _is_label(rows, i)] or free
        if not 1 <= len(prose) <= 2:
            raise ValueError(
                f"{path}:1: which of the columns {', '.join(names)} is the text? name "
                "it, and the pair's where there is one"
            )
        text, pair = prose[:1], prose[1:]
    return {"text": text[0], **({"pair": pair[0]} if pair else {}), **found}


def _known(role, names, free):
    """Columns whose names are known for a role, the likeliest first."""
    return [i for name in KNOWN[role] for i in free if plain(names[i]) == name]


def _is_label(rows, column):
    cells = {row[column] for row in rows if column < len(row)} - {None}
    few = len(cells) <= max(2, min(FEW, len(rows) // 2))
    return few or all(is_number(cell) for cell in cells)


def plain(name: str) -> str:
    """A column's name in lower case, without blanks."""
    return name.strip().lower().replace(" ", "_")


def is_number(cell: str | None) -> bool:
    """Whether a cell reads as a number."""
    try:
        float(cell or "")
    except ValueError:
        return False
    return True
