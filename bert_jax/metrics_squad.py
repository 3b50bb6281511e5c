"""Scores of answers, as the official scripts of SQuAD 1.1 and 2.0 compute them.

They are in percent. An answer is compared with each of the right ones, and the best
comparison counts; a question without any has the right answer "".
"""

import collections
import re
import string
from collections.abc import Mapping, Sequence

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


def f1(right: str, said: str, blank: bool = True) -> float:
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
        "f1": 100.0 * sum(_best(f1, *x, blank=False) for x in pairs) / len(right),
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
