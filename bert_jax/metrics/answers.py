"""Scores of answers to questions, as the scripts of SQuAD compute them."""

import collections
import re
import string
from collections.abc import Callable, Mapping, Sequence

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
