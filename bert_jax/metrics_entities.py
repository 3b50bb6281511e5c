"""Scores of entities: spans of words that their labels name, and that must be exact.

As CoNLL-2003 counts them (Tjong Kim Sang & De Meulder, 2003), and seqeval by default.
"""

import collections
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

# A prefix says which part of an entity a word is: B first, I inside, E last, S single.
# Some write L, U and M for E, S and I.
_SAME = {"L": "E", "U": "S", "M": "I"}
_LABEL = re.compile("([BIESLUM])(?:-(.*))?")

Sentences = Sequence[Sequence[str]]


class Entity(NamedTuple):
    """Its type, its first word, and the word behind its last."""

    type: str
    start: int
    end: int


class Score(NamedTuple):
    """Precision, recall and F1 from 0 to 1, and how many entities there really are."""

    precision: float
    recall: float
    f1: float
    count: int


def are_entities(labels: Iterable[str]) -> bool:
    """Whether labels mark entities: all are O, or have a prefix such as B- and I-."""
    inside = [label for label in labels if label != "O"]
    return bool(inside) and all(_LABEL.fullmatch(label) for label in inside)


def entities(labels: Sequence[str]) -> list[Entity]:
    """The entities of one sentence's labels, in whichever scheme they are.

    A word goes on with an entity if it is I or E, the word before is B or I, and both
    have one type; any other label but O begins one. So IOB1, IOB2 and BIOES are read
    alike, and labels that break their scheme mean something too.
    """
    found: list[Entity] = []
    before, type_before = "O", ""
    for place, label in enumerate(labels):
        match = _LABEL.fullmatch(label)
        part, kind = match.groups() if match else ("O", "")
        part, kind = _SAME.get(part, part), kind or "_"
        if part in "IE" and before in "BI" and kind == type_before:
            found[-1] = found[-1]._replace(end=place + 1)
        elif part != "O":
            found.append(Entity(kind, place, place + 1))
        before, type_before = part, kind
    return found


def score(labels: Sentences, predictions: Sentences) -> Score:
    """Of all entities of all sentences together (the micro average)."""
    return _score(*map(_numbered, (labels, predictions)))


def score_by_type(labels: Sentences, predictions: Sentences) -> dict[str, Score]:
    """The same for each type that is there or was predicted, by name."""
    real, said = (_by_type(_numbered(x)) for x in (labels, predictions))
    return {kind: _score(real[kind], said[kind]) for kind in sorted({*real, *said})}


def _numbered(sentences):
    return {(i, x) for i, labels in enumerate(sentences) for x in entities(labels)}


def _by_type(found):
    sets = collections.defaultdict(set)
    for number, entity in found:
        sets[entity.type].add((number, entity))
    return sets


def _score(real, said):
    right = len(real & said)
    precision = right / len(said) if said else 0.0
    recall = right / len(real) if real else 0.0
    both = len(real) + len(said)
    return Score(precision, recall, 2 * right / both if both else 0.0, len(real))
