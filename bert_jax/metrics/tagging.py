"""Entities in the labels of words, and their scores."""

import collections
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

# A label's prefix is the part of an entity that a word is: B first, I inside, E last,
# S single. Some schemes write L, U and M for E, S and I.
_SAME_PREFIX = {"L": "E", "U": "S", "M": "I"}
_LABEL = re.compile("([BIESLUM])(?:-(.*))?")

Sentences = Sequence[Sequence[str]]


class Entity(NamedTuple):
    """An entity's type, its first word, and the word after its last.

    >>> Entity("PER", 0, 2).type
    'PER'
    """

    type: str
    start: int
    end: int


class EntityScore(NamedTuple):
    """Precision, recall and F1 from 0 to 1; `support` is the number of labels.

    >>> EntityScore(precision=1.0, recall=0.5, f1=2 / 3, support=2).recall
    0.5
    """

    precision: float
    recall: float
    f1: float
    support: int


def are_entities(labels: Iterable[str]) -> bool:
    """True if labels mark entities: all are O, or have a prefix such as B- and I-.

    >>> are_entities(["B-PER", "I-PER", "O"]), are_entities(["NOUN", "VERB"])
    (True, False)
    """
    inside = [label for label in labels if label != "O"]
    return bool(inside) and all(_LABEL.fullmatch(label) for label in inside)


def entities(labels: Sequence[str]) -> list[Entity]:
    """The entities of one sentence's labels, in any of the usual schemes.

    A word continues an entity if it is I or E, the word before is B or I, and both have
    one type; any other label but O begins one. So IOB1, IOB2 and BIOES are read alike,
    and so are labels that break their scheme.

    >>> entities(["B-PER", "I-PER", "O", "B-LOC"])
    [Entity(type='PER', start=0, end=2), Entity(type='LOC', start=3, end=4)]
    """
    result: list[Entity] = []
    before, type_before = "O", ""
    for position, label in enumerate(labels):
        match = _LABEL.fullmatch(label)
        prefix, kind = match.groups() if match else ("O", "")
        prefix, kind = _SAME_PREFIX.get(prefix, prefix), kind or "_"
        if prefix in "IE" and before in "BI" and kind == type_before:
            result[-1] = result[-1]._replace(end=position + 1)
        elif prefix != "O":
            result.append(Entity(kind, position, position + 1))
        before, type_before = prefix, kind
    return result


def entity_score(labels: Sentences, predictions: Sentences) -> EntityScore:
    """The micro average over the entities of all sentences.

    >>> score = entity_score([["B-PER", "O", "B-LOC"]], [["B-PER", "O", "O"]])
    >>> score.precision, score.recall
    (1.0, 0.5)
    """
    return _entity_score(_numbered(labels), _numbered(predictions))


def entity_scores_by_type(
    labels: Sentences, predictions: Sentences
) -> dict[str, EntityScore]:
    """The score of each type that is labelled or predicted, by its name.

    >>> scores = entity_scores_by_type([["B-PER", "B-LOC"]], [["B-PER", "O"]])
    >>> {kind: score.f1 for kind, score in scores.items()}
    {'LOC': 0.0, 'PER': 1.0}
    """
    actual, predicted = _by_type(_numbered(labels)), _by_type(_numbered(predictions))
    types = sorted({*actual, *predicted})
    return {kind: _entity_score(actual[kind], predicted[kind]) for kind in types}


_NumberedEntities = set[tuple[int, Entity]]


def _numbered(sentences: Sentences) -> _NumberedEntities:
    return {(i, x) for i, labels in enumerate(sentences) for x in entities(labels)}


def _by_type(numbered: _NumberedEntities) -> dict[str, _NumberedEntities]:
    sets: dict[str, _NumberedEntities] = collections.defaultdict(set)
    for number, entity in numbered:
        sets[entity.type].add((number, entity))
    return sets


def _entity_score(
    actual: _NumberedEntities, predicted: _NumberedEntities
) -> EntityScore:
    right = len(actual & predicted)
    precision = right / len(predicted) if predicted else 0.0
    recall = right / len(actual) if actual else 0.0
    total = len(actual) + len(predicted)
    return EntityScore(
        precision, recall, 2 * right / total if total else 0.0, len(actual)
    )
