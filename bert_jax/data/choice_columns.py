"""Which columns of a table are a question and its choices: given or found."""

import dataclasses
import itertools
import re
from collections.abc import Mapping, Sequence

from bert_jax.data.columns import plain

# How data sets name columns, the likeliest first; SWAG's come first.
KNOWN = {
    "context": "sent1 context ctx_a ctx premise article passage paragraph startphrase "
    "goal sentence text question".split(),
    "opening": "sent2 ctx_b question".split(),
    "label": "label answer answerkey answer_key gold correct target".split(),
}

# One column that holds a list, and what stands before the number of one choice.
LISTS = ("choices", "endings", "options", "answers")
STEMS = ("ending", "choice", "option", "answer", "sol", "solution", "")
_NUMBERED = re.compile(r"([a-z]*?)[_-]?(\d|[a-z])")
_ORDERS = ("0123456789", "123456789", "abcdefghijklmnopqrstuvwxyz")


@dataclasses.dataclass(frozen=True)
class ChoiceColumns:
    """Which columns to read, by name; None, or no choices, to find them.

    Attributes:
      context: what every choice follows.
      opening: what opens every choice; "" for none.
      choices: a column for each, or one that holds lists in JSON.
      label: which choice is right.
      first: what labels call the first choice, for example "0", "1" or "A".
    """

    context: str | None = None
    opening: str | None = None
    choices: tuple[str, ...] = ()
    label: str | None = None
    first: str | None = None

    def place(self, label: str) -> int | None:
        """The number from 0 of what a label says; None where it says nothing."""
        if self.first.isdecimal():
            return int(label) - int(self.first) if label.isdecimal() else None
        if len(self.first) == 1:
            return ord(label) - ord(self.first) if len(label) == 1 else None
        return self.choices.index(label) if label in self.choices else None

    def called(self, place: int) -> str:
        """What a label calls the choice of a number from 0; `place` undone."""
        if self.first.isdecimal():
            return str(int(self.first) + place)
        if len(self.first) == 1:
            return chr(ord(self.first) + place)
        return self.choices[place]


def find(
    path: str,
    asked: ChoiceColumns,
    names: Sequence[str],
    rows: Sequence[Mapping[str, str | None]],
    labelled: bool,
) -> ChoiceColumns:
    """`asked` with what it leaves open; `opening` is "" where there is none.

    Raises:
      ValueError: where a given column is missing, or none can be told apart.
    """
    _refuse_missing(path, asked, names, labelled)
    free = [x for x in names if x not in (asked.context, asked.opening, asked.label)]
    choices = asked.choices or _lists(free, rows) or _numbered(free)
    free = [x for x in free if x not in choices]
    label = asked.label or _known("label", free)
    free = [x for x in free if x != label]
    context = asked.context or _known("context", free) or _only(free)
    free = [x for x in free if x != context]
    opening = asked.opening
    if opening is None:
        opening = _known("opening", free) or ""
    needed = {"context": context, "label": label or not labelled}
    missing = [role for role, name in needed.items() if not name]
    if missing or not choices:
        what = missing[0] if choices else "choices"
        raise ValueError(
            f"{path}:1: which of the columns {', '.join(names)} has the {what}? name it"
        )
    return dataclasses.replace(
        asked, context=context, opening=opening, choices=tuple(choices), label=label
    )


def _refuse_missing(path, asked, names, labelled):
    needed = [asked.context, asked.opening, *asked.choices]
    for name in filter(None, [*needed, asked.label if labelled else None]):
        if name not in names:
            raise ValueError(
                f"{path}:1: there is no column {name!r}; it has "
                f"{', '.join(filter(None, names))}"
            )


def _known(role, free):
    """The column whose name is known for a role, the likeliest one."""
    found = [x for name in KNOWN[role] for x in free if plain(x) == name]
    return found[0] if found else None


def _only(free):
    return free[0] if len(free) == 1 else None


def _lists(free, rows):
    cells = {name: rows[0].get(name) or "" for name in free}
    found = [x for x in free if plain(x) in LISTS and cells[x].startswith("[")]
    return found[:1]


def _numbered(free):
    """Columns that differ in a number or a letter at their end, in its order."""
    families = {stem: {} for stem in STEMS}
    for name in free:
        match = _NUMBERED.fullmatch(plain(name))
        if match and match[1] in families:
            families[match[1]][match[2]] = name
    for found in families.values():
        for order in _ORDERS:
            ends = list(itertools.takewhile(found.__contains__, order))
            if len(ends) > 1:
                return [found[end] for end in ends]
    return []
