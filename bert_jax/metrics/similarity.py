"""Scores of similarities: of pairs with numbers or classes, triplets and candidates."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from bert_jax.metrics.classes import matthews


def triplet_accuracy(
    positive: ArrayLike, negative: ArrayLike, margin: float = 0.0
) -> float:
    """The share of triplets whose positive is more similar than the negative.

    Args:
      positive, negative: similarities of the anchors to the positives and to the
        negatives, `[N]`.
      margin: by how much more.

    >>> triplet_accuracy([0.9, 0.5, 0.4], [0.1, 0.2, 0.6])
    0.6666666666666666
    """
    limit = np.asarray(negative) + np.asarray(margin, np.asarray(negative).dtype)
    return float(np.mean(np.asarray(positive) > limit))


def pair_scores(labels: ArrayLike, similarities: ArrayLike) -> dict[str, float]:
    """The best that thresholds of similarity can do for pairs of two classes.

    These are `accuracy` and `f1` with their thresholds, `precision` and `recall` at the
    threshold of F1, `mcc` (Matthews' correlation) there, and `ap`, the average
    precision, by the names and rules of sentence-transformers: a pair is positive from
    the threshold on, which is halfway between two similarities.

    Args:
      labels: 1 for pairs that belong together, else 0, `[N]`.
      similarities: of the pairs, `[N]`.

    Raises:
      ValueError: for other labels, or for one class only.

    >>> scores = pair_scores([1, 0, 1, 0], [0.8, 0.4, 0.6, 0.7])
    >>> round(scores["f1"], 4), round(scores["f1_threshold"], 4), scores["accuracy"]
    (0.8, 0.5, 0.75)
    """
    labels, similarities = np.asarray(labels), np.asarray(similarities)
    if not {*np.unique(labels).tolist()} == {0, 1}:
        raise ValueError(
            f"pairs are labelled {_shown(labels)}; give 1 for pairs that belong "
            "together and 0 for others, some of each"
        )
    order = np.argsort(-similarities, kind="stable")
    scores, hits = similarities[order], labels[order] == 1
    # The last of each group of equal similarities, where a threshold can be.
    ends = np.flatnonzero(np.append(scores[1:] != scores[:-1], True))
    positives, number = hits.sum(), len(hits)
    right, taken = hits.cumsum()[ends], ends + 1
    thresholds = _thresholds(scores, ends)

    # A threshold above all similarities comes first: no pair is positive.
    accuracies = np.append(0, 2 * right - taken) + number - positives
    best = int(accuracies.argmax())
    above_all = np.nextafter(scores[0], scores.dtype.type(np.inf))
    f1 = 2 * right / (taken + positives)
    at = int(f1.argmax())
    precisions, recalls = right / taken, right / positives
    return {
        "accuracy": float(accuracies[best] / number),
        "accuracy_threshold": float(thresholds[best - 1] if best else above_all),
        "f1": float(f1[at]),
        "f1_threshold": float(thresholds[at]),
        "precision": float(precisions[at]),
        "recall": float(recalls[at]),
        "ap": float((np.diff(recalls, prepend=0) * precisions).sum()),
        "mcc": matthews(labels == 1, similarities >= thresholds[at]),
    }


def reranking_scores(
    labels: Sequence[ArrayLike], scores: Sequence[ArrayLike], k: int = 10
) -> dict[str, float]:
    """Means over queries of `map`, `mrr@k` and `ndcg@k` of ranked candidates.

    In MAP and nDCG candidates with equal scores share their places, as in
    scikit-learn; in MRR they keep their order.

    Args:
      labels: for each query, the grades of its candidates `[N]`, 0 for no relevance.
      scores: for each query, the scores of its candidates `[N]`.
      k: the ranks that count in MRR and nDCG.

    Raises:
      ValueError: for a query without a relevant candidate, or a `k` below 1.

    >>> reranking_scores([[1, 0, 0]], [[0.2, 0.9, 0.1]])
    {'map': 0.5, 'mrr@10': 0.5, 'ndcg@10': 0.6309297535714575}
    """
    if k < 1:
        raise ValueError(f"k={k}; it must be at least 1")
    rows = []
    for number, (grades, of_query) in enumerate(zip(labels, scores, strict=True)):
        grades, of_query = np.asarray(grades, np.float64), np.asarray(of_query)
        if not (grades > 0).any():
            raise ValueError(
                f"query {number} has no relevant candidate; leave it out, or give one"
            )
        order = np.argsort(-of_query, kind="stable")
        rows.append(_candidate_scores(grades[order], of_query[order], k))
    if not rows:
        raise ValueError("there is no query to score; give at least one")
    names = ("map", f"mrr@{k}", f"ndcg@{k}")
    return dict(zip(names, np.mean(rows, 0).tolist(), strict=True))


def _candidate_scores(
    grades: np.ndarray, scores: np.ndarray, k: int
) -> tuple[float, float, float]:
    """Average precision, reciprocal rank and nDCG of ranked candidates `[N]`."""
    hits = grades > 0
    ends = np.flatnonzero(np.append(scores[1:] != scores[:-1], True))
    right = hits.cumsum()[ends]
    precision = right / (ends + 1)
    average = (np.diff(right, prepend=0) * precision).sum() / hits.sum()
    first = int(hits.argmax())
    discounts = 1 / np.log2(np.arange(len(grades)) + 2)
    discounts[k:] = 0
    starts = np.append(0, ends[:-1] + 1)
    # The mean gain of each group of equal scores, and the sum of its discounts.
    gains = np.add.reduceat(grades, starts) / (ends + 1 - starts)
    gain = gains @ np.add.reduceat(discounts, starts)
    ideal = np.sort(grades)[::-1] @ discounts
    return float(average), (first < k) / (first + 1), float(gain / ideal)


def _thresholds(scores: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """For each group of equal falling `scores` [N], a number between it and the next.

    The last group has its own score.
    """
    own = scores[ends]
    below = np.append(own[1:], own[-1])
    middle = (own + below) / scores.dtype.type(2)
    return np.where(middle == below, own, middle)


def _shown(labels: np.ndarray) -> str:
    values = np.unique(labels).tolist()
    return ", ".join(map(str, values[:3])) + (" …" if len(values) > 3 else "")
