"""Scores of predictions, on NumPy arrays `[N]`."""

import collections
import re
import string
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np


def accuracy(labels: np.ndarray, predictions: np.ndarray) -> float:
    """The share of rows that are right.

    >>> accuracy([0, 1, 1, 2], [0, 1, 2, 2])
    0.75
    """
    return float(np.mean(np.asarray(labels) == np.asarray(predictions)))


def f1(labels: np.ndarray, predictions: np.ndarray) -> float:
    """F1 of class 1; 0 where there is none, as scikit-learn has it.

    >>> f1([0, 1, 1, 1], [0, 1, 0, 0])
    0.5
    """
    real, said = np.asarray(labels) == 1, np.asarray(predictions) == 1
    found = real.sum() + said.sum()
    return float(2 * (real & said).sum() / found) if found else 0.0


def matthews(labels: np.ndarray, predictions: np.ndarray) -> float:
    """Matthews' correlation of two or more classes; 0 where one side is constant.

    Matthews, 1975; with more classes R_K of Gorodkin, 2004.

    >>> round(matthews([0, 0, 1, 1], [0, 0, 1, 0]), 4)
    0.5774
    """
    classes, both = np.unique([labels, predictions], return_inverse=True)
    one_hot = np.eye(len(classes))[both.reshape(2, -1)]
    spread = one_hot - one_hot.mean(1, keepdims=True)
    between = (spread[0] * spread[1]).sum()
    scale = np.sqrt((spread[0] ** 2).sum() * (spread[1] ** 2).sum())
    return float(between / scale) if scale else 0.0


def pearson(labels: np.ndarray, predictions: np.ndarray) -> float:
    """Pearson's correlation; NaN where one side is constant.

    >>> pearson([1, 2, 3], [2, 4, 6]), pearson([1, 2, 3], [5, 5, 5])
    (1.0, nan)
    """
    x, y = np.asarray(labels, np.float64), np.asarray(predictions, np.float64)
    # Asked of the values: rounding leaves a constant a little beside its mean.
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return float("nan")
    x, y = x - x.mean(), y - y.mean()
    return float(x @ y / np.sqrt((x @ x) * (y @ y)))


def spearman(labels: np.ndarray, predictions: np.ndarray) -> float:
    """Spearman's correlation: Pearson's of the ranks; equals share their mean rank.

    >>> round(spearman([1, 2, 3, 4], [1, 10, 10, 1000]), 4)
    0.9487
    """
    return pearson(_ranks(labels), _ranks(predictions))


def _ranks(values):
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[inverse]


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


_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)

Texts = Mapping[str, Sequence[str]]


def normalized(text: str) -> str:
    """Lower case, without ASCII punctuation, English articles and spare blanks."""
    text = text.lower().translate(_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", text).split())


def exact(right: str, said: str) -> float:
    """Whether two answers are the same once they are normalized."""
    return float(normalized(right) == normalized(said))


def answer_f1(right: str, said: str, blank: bool = True) -> float:
    """F1 of two answers as bags of words.

    Where one has no word left, that is 1 if the other has none either; unless `blank`
    is false: then it is 0, as in the script of SQuAD 1.1.
    """
    one, other = normalized(right).split(), normalized(said).split()
    if not one or not other:
        return float(blank and one == other)
    same = (collections.Counter(one) & collections.Counter(other)).total()
    if not same:
        return 0.0
    precision, recall = same / len(other), same / len(one)
    return 2 * precision * recall / (precision + recall)


def squad_1(right: Texts, said: Mapping[str, str]) -> dict[str, float]:
    """`exact_match` and `f1` of SQuAD 1.1.

    Args:
      right: the right answers of each question, by its id.
      said: what was answered; a question that is left out counts 0.
    """
    _refuse_none(right)
    pairs = [(texts, said[key]) for key, texts in right.items() if key in said]
    return {
        "exact_match": 100.0 * sum(_best(exact, *x) for x in pairs) / len(right),
        "f1": 100.0
        * sum(_best(answer_f1, *x, blank=False) for x in pairs)
        / len(right),
    }


def squad_2(
    right: Texts,
    said: Mapping[str, str],
    odds: Mapping[str, float] | None = None,
    threshold: float = 0.0,
) -> dict[str, float]:
    """The scores of SQuAD 2.0, by the official names.

    That is `exact`, `f1` and `total`, the same for questions with an answer
    (`HasAns_…`) and without (`NoAns_…`), and with `odds` the best scores that another
    threshold would give (`best_exact`, `best_exact_thresh`, `best_f1`,
    `best_f1_thresh`).

    Args:
      right: the right answers of each question, by its id; none where there is none.
      said: what was answered, "" for no answer.
      odds: how much speaks for no answer, on any scale.
      threshold: where the odds are above it, the answer is taken to be "".

    Raises:
      ValueError: where a question has no answer in `said`, or no odds.
    """
    _refuse_none(right)
    for name, given in (("answer", said), ("odds", odds)):
        missing = [] if given is None else [key for key in right if key not in given]
        if missing:
            raise ValueError(
                f"{len(missing)} questions have no {name}, {missing[0]!r} the first; "
                "give one for each"
            )
    golds = {
        k: [x for x in texts if normalized(x)] or [""] for k, texts in right.items()
    }
    raw = {
        name: {key: _best(score, golds[key], said[key]) for key in right}
        for name, score in (("exact", exact), ("f1", f1))
    }
    found = _averages(raw, right, odds, threshold)
    for name, scores in raw.items() if odds is not None else ():
        best, at = best_threshold(right, said, scores, odds)
        found |= {f"best_{name}": best, f"best_{name}_thresh": at}
    return found


def _averages(raw, right, odds, threshold):
    """Scores after the threshold, of all questions and of either kind."""
    kinds = {
        "": list(right),
        "HasAns_": [key for key in right if right[key]],
        "NoAns_": [key for key in right if not right[key]],
    }
    silent = {k for k in right if odds is not None and odds[k] > threshold}
    found = {}
    for prefix, keys in kinds.items():
        for name, scores in raw.items() if keys else ():
            total = sum(float(not right[k]) if k in silent else scores[k] for k in keys)
            found[f"{prefix}{name}"] = 100.0 * total / len(keys)
        if keys:
            found[f"{prefix}total"] = len(keys)
    return found


def best_threshold(
    right: Texts,
    said: Mapping[str, str],
    scores: Mapping[str, float],
    odds: Mapping[str, float],
) -> tuple[float, float]:
    """The best average of `scores`, in percent, and the threshold that gives it.

    Questions are answered one after the other, the ones with the lowest odds first; all
    others count as not answered. The threshold is 0 where answering none is best.
    """
    now = best = sum(not texts for texts in right.values())
    threshold = 0.0
    for key in sorted(odds, key=odds.__getitem__):
        if key not in right:
            continue
        now += scores[key] if right[key] else -bool(said[key])
        if now > best:
            best, threshold = now, odds[key]
    return 100.0 * best / len(right), threshold


def _best(score, right, said, **options):
    return max(score(text, said, **options) for text in right)


def _refuse_none(right):
    if not right:
        raise ValueError("there is no question to score; give at least one")
