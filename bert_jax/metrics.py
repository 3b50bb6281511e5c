"""Scores of predictions: classes and numbers, entities, answers to questions.

They need NumPy only, and agree with scikit-learn, SciPy, seqeval and the official
scripts of SQuAD to the last digit; the tests hold them to that.
"""

import collections
import re
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike


def accuracy(labels: ArrayLike, predictions: ArrayLike) -> float:
    """The share of rows that are right.

    >>> accuracy([0, 1, 1, 2], [0, 1, 2, 2])
    0.75
    """
    return float(np.mean(np.asarray(labels) == np.asarray(predictions)))


def f1(labels: ArrayLike, predictions: ArrayLike) -> float:
    """F1 of class 1; 0 if neither side has it, as in scikit-learn.

    >>> f1([0, 1, 1, 1], [0, 1, 0, 0])
    0.5
    """
    actual, predicted = np.asarray(labels) == 1, np.asarray(predictions) == 1
    total = actual.sum() + predicted.sum()
    return float(2 * (actual & predicted).sum() / total) if total else 0.0


def matthews(labels: ArrayLike, predictions: ArrayLike) -> float:
    """Matthews' correlation of two or more classes; 0 if one side is constant.

    Matthews, 1975; with more classes R_K of Gorodkin, 2004.

    >>> round(matthews([0, 0, 1, 1], [0, 0, 1, 0]), 4)
    0.5774
    """
    both = np.stack([np.asarray(labels), np.asarray(predictions)])
    classes, indices = np.unique(both, return_inverse=True)
    one_hot = np.eye(len(classes))[indices.reshape(2, -1)]
    centred = one_hot - one_hot.mean(1, keepdims=True)
    covariance = (centred[0] * centred[1]).sum()
    scale = np.sqrt((centred[0] ** 2).sum() * (centred[1] ** 2).sum())
    return float(covariance / scale) if scale else 0.0


# Scores that a constant has 0 of, and that chance alone moves away from 0.
CORRELATIONS = ("matthews", "pearson", "spearman")
# Beginnings of scores whose baselines have a name of their own.
BASELINES = {"mlm": "unigram", "nsp": "nsp_constant", "rtd": "rtd_constant"}


def baseline_name(score: str) -> str:
    """The name under which a report has the score of the best constant answer.

    >>> baseline_name("accuracy"), baseline_name("mlm_loss")
    ('constant_accuracy', 'unigram_loss')
    """
    start, _, rest = score.partition("_")
    if start in BASELINES:
        return f"{BASELINES[start]}_{rest}"
    return f"constant_{score}"


def is_no_better(score: str, value: float, baseline: float, rows: int) -> bool:
    """True if a score is no better than that of a constant answer; NaN never is.

    Losses are better if they are lower. A correlation over N rows has to exceed 2 /
    sqrt(N), which is two standard errors of none at all.

    >>> is_no_better("accuracy", 0.5, 0.5, 100), is_no_better("mlm_loss", 2.0, 4.3, 9)
    (True, False)
    """
    if score.endswith("loss"):
        return not value < baseline
    chance = 2 / np.sqrt(max(rows, 1)) if score in CORRELATIONS else 0.0
    return not value > baseline + chance


def pearson(labels: ArrayLike, predictions: ArrayLike) -> float:
    """Pearson's correlation; NaN if one side is constant.

    >>> pearson([1, 2, 3], [2, 4, 6]), pearson([1, 2, 3], [5, 5, 5])
    (1.0, nan)
    """
    x, y = np.asarray(labels, np.float64), np.asarray(predictions, np.float64)
    # Compares values: after rounding, a constant can differ a little from its mean.
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return float("nan")
    x, y = x - x.mean(), y - y.mean()
    return float(x @ y / np.sqrt((x @ x) * (y @ y)))


def spearman(labels: ArrayLike, predictions: ArrayLike) -> float:
    """Spearman's correlation: Pearson's of the ranks; equal values share a mean rank.

    >>> round(spearman([1, 2, 3, 4], [1, 10, 10, 1000]), 4)
    0.9487
    """
    return pearson(_ranks(labels), _ranks(predictions))


def _ranks(values: ArrayLike) -> np.ndarray:
    _, inverse, counts = np.unique(
        np.asarray(values), return_inverse=True, return_counts=True
    )
    return (np.cumsum(counts) - (counts - 1) / 2)[inverse]


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


_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)

# The right answers of each question, by its id; none where there is none.
Answers = Mapping[str, Sequence[str]]


def normalize_answer(text: str) -> str:
    """Lower case, without ASCII punctuation, English articles and spare blanks.

    >>> normalize_answer("The  Eiffel Tower!")
    'eiffel tower'
    """
    text = text.lower().translate(_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", text).split())


def exact_match(right: str, answer: str) -> float:
    """1 if two answers are the same once they are normalized, else 0.

    >>> exact_match("the cat", "Cat."), exact_match("the cat", "a dog")
    (1.0, 0.0)
    """
    return float(normalize_answer(right) == normalize_answer(answer))


def answer_f1(right: str, answer: str, blank: bool = True) -> float:
    """F1 of two answers as bags of words.

    If an answer has no word left, the score is 1 when the other has none either; with
    `blank` False it is 0, as in the script of SQuAD 1.1.

    >>> round(answer_f1("black cat", "the cat"), 4)
    0.6667
    """
    one, other = normalize_answer(right).split(), normalize_answer(answer).split()
    if not one or not other:
        return float(blank and one == other)
    same = (collections.Counter(one) & collections.Counter(other)).total()
    if not same:
        return 0.0
    precision, recall = same / len(other), same / len(one)
    return 2 * precision * recall / (precision + recall)


def as_shares(scores: Mapping[str, float]) -> dict[str, float]:
    """Scores from 0 to 1: those of SQuAD, which are in percent, are divided by 100.

    Numbers of questions and thresholds stay as they are.

    >>> as_shares({"exact_match": 50.0, "f1": 75.0, "total": 8.0})
    {'exact_match': 0.5, 'f1': 0.75, 'total': 8.0}
    >>> as_shares({"f1": 0.75})
    {'f1': 0.75}
    """
    if not {"exact_match", "exact"} & scores.keys():
        return dict(scores)
    percent = ("exact_match", "exact", "f1")
    return {k: x / 100 if k.endswith(percent) else x for k, x in scores.items()}


def squad_1(right: Answers, answers: Mapping[str, str]) -> dict[str, float]:
    """`exact_match` and `f1` of SQuAD 1.1.

    Args:
      right: the right answers of each question, by its id.
      answers: the given answer of each question; a question without one counts 0.

    Raises ValueError if there is no question.

    >>> squad_1({"q1": ["a cat"], "q2": ["1843"]}, {"q1": "cat", "q2": "in 1843"})
    {'exact_match': 50.0, 'f1': 83.33333333333333}
    """
    _check_any(right)
    pairs = [(texts, answers[key]) for key, texts in right.items() if key in answers]

    def f1_without_blanks(text: str, answer: str) -> float:
        return answer_f1(text, answer, blank=False)

    return {
        "exact_match": 100.0 * sum(_best(exact_match, *x) for x in pairs) / len(right),
        "f1": 100.0 * sum(_best(f1_without_blanks, *x) for x in pairs) / len(right),
    }


def squad_2(
    right: Answers,
    answers: Mapping[str, str],
    odds: Mapping[str, float] | None = None,
    threshold: float = 0.0,
) -> dict[str, float]:
    """The scores of SQuAD 2.0, by the official names.

    These are `exact`, `f1` and `total`, the same for questions with an answer
    (`HasAns_…`) and without (`NoAns_…`), and with `odds` the best scores that another
    threshold would give (`best_exact`, `best_exact_thresh`, `best_f1`,
    `best_f1_thresh`).

    Args:
      right: the right answers of each question, by its id; none where there is none.
      answers: the given answer of each question, "" for no answer.
      odds: the evidence that a question has no answer, on any scale.
      threshold: where the odds are above it, the answer counts as "".

    Raises:
      ValueError: where a question is missing in `answers` or `odds`.

    >>> scores = squad_2({"q1": ["a cat"], "q2": []}, {"q1": "cat", "q2": "1843"})
    >>> scores["exact"], scores["HasAns_exact"], scores["NoAns_exact"]
    (50.0, 100.0, 0.0)
    """
    _check_any(right)
    _check_complete("answer", right, answers)
    if odds is not None:
        _check_complete("odds", right, odds)
    references = {
        key: [text for text in texts if normalize_answer(text)] or [""]
        for key, texts in right.items()
    }
    raw = {
        name: {key: _best(score, references[key], answers[key]) for key in right}
        for name, score in (("exact", exact_match), ("f1", answer_f1))
    }
    result = _averages(raw, right, odds, threshold)
    if odds is not None:
        for name, scores in raw.items():
            best, at = best_threshold(right, answers, scores, odds)
            result |= {f"best_{name}": best, f"best_{name}_thresh": at}
    return result


def best_threshold(
    right: Answers,
    answers: Mapping[str, str],
    scores: Mapping[str, float],
    odds: Mapping[str, float],
) -> tuple[float, float]:
    """The best average of `scores`, in percent, and the threshold that gives it.

    Questions are answered one after the other, those with the lowest odds first; all
    others count as not answered. The threshold is 0 where answering none is best.

    >>> right, answers = {"q1": ["cat"], "q2": []}, {"q1": "cat", "q2": "1843"}
    >>> odds = {"q1": -3.0, "q2": 2.0}
    >>> best_threshold(right, answers, {"q1": 1.0, "q2": 0.0}, odds)
    (100.0, -3.0)
    """
    current = best = float(sum(not texts for texts in right.values()))
    threshold = 0.0
    for key in sorted(odds, key=odds.__getitem__):
        if key not in right:
            continue
        current += scores[key] if right[key] else -bool(answers[key])
        if current > best:
            best, threshold = current, odds[key]
    return 100.0 * best / len(right), threshold


def _averages(
    raw: Mapping[str, Mapping[str, float]],
    right: Answers,
    odds: Mapping[str, float] | None,
    threshold: float,
) -> dict[str, float]:
    """Scores after the threshold, of all questions and of either kind."""
    kinds = {
        "": list(right),
        "HasAns_": [key for key in right if right[key]],
        "NoAns_": [key for key in right if not right[key]],
    }
    unanswered = {k for k in right if odds is not None and odds[k] > threshold}
    result: dict[str, float] = {}
    for prefix, keys in kinds.items():
        if not keys:
            continue
        for name, scores in raw.items():
            total = sum(
                float(not right[key]) if key in unanswered else scores[key]
                for key in keys
            )
            result[f"{prefix}{name}"] = 100.0 * total / len(keys)
        result[f"{prefix}total"] = len(keys)
    return result


def _best(
    score: Callable[[str, str], float], right: Sequence[str], answer: str
) -> float:
    return max(score(text, answer) for text in right)


def _check_any(right: Answers) -> None:
    if not right:
        raise ValueError("there is no question to score; give at least one")


def _check_complete(name: str, right: Answers, values: Mapping[str, object]) -> None:
    missing = [key for key in right if key not in values]
    if missing:
        raise ValueError(
            f"questions without {name}: {len(missing)}, {missing[0]!r} the first; "
            "give one for each"
        )
