"""Scores of ranked documents against judgements of what is relevant.

A ranking is a sequence of document ids, the best first. Judgements give each judged
document a grade; a grade above 0 is relevant, and all others are not.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

import numpy as np

Id = TypeVar("Id", bound=Hashable)
Query = TypeVar("Query", bound=Hashable)

# The cutoffs that reports of retrieval have, by score.
CUTOFFS: Mapping[str, tuple[int, ...]] = {
    "ndcg": (10,),
    "mrr": (10,),
    "map": (100,),
    "accuracy": (1, 3, 5, 10),
    "precision": (1, 3, 5, 10),
    "recall": (1, 3, 5, 10, 100),
}


def ndcg_at(ranking: Sequence[Id], judgements: Mapping[Id, float], k: int) -> float:
    """Normalised discounted cumulative gain of the first k documents.

    The gain of a document is its grade, and its discount log2(1 + rank), as in
    trec_eval (Järvelin and Kekäläinen, 2002). With grades of 1 it is that of
    sentence-transformers too.

    >>> round(ndcg_at(["a", "b", "c"], {"a": 1, "c": 2}, k=10), 4)
    0.7602
    """
    _check_cutoff(k)
    gains = [max(judgements.get(x, 0), 0) for x in ranking[:k]]
    ideal = sorted((x for x in judgements.values() if x > 0), reverse=True)[:k]
    return _discounted(gains) / _discounted(ideal) if ideal else 0.0


def reciprocal_rank(
    ranking: Sequence[Id], judgements: Mapping[Id, float], k: int | None = None
) -> float:
    """One over the rank of the first relevant document; 0 if the first k have none.

    >>> reciprocal_rank(["a", "b", "c"], {"b": 1, "c": 1})
    0.5
    """
    hits = _hits(ranking, judgements, k)
    return 1 / (1 + hits.index(True)) if any(hits) else 0.0


def average_precision(
    ranking: Sequence[Id], judgements: Mapping[Id, float], k: int | None = None
) -> float:
    """The mean over the relevant documents of the precision at their ranks.

    Documents that are missing count 0. With `k` the mean is over at most k documents,
    as in sentence-transformers; `map_cut` of trec_eval divides by all of them.

    >>> average_precision(["a", "b", "c"], {"a": 1, "c": 1})
    0.8333333333333333
    """
    hits, relevant = _hits(ranking, judgements, k), _relevant(judgements)
    ranks = [rank for rank, hit in enumerate(hits, 1) if hit]
    total = sum(number / rank for number, rank in enumerate(ranks, 1))
    most = relevant if k is None else min(k, relevant)
    return total / most if most else 0.0


def precision_at(
    ranking: Sequence[Id], judgements: Mapping[Id, float], k: int
) -> float:
    """The share of relevant documents among k; places without a document count.

    >>> precision_at(["a", "b"], {"a": 1, "c": 1}, k=4)
    0.25
    """
    return sum(_hits(ranking, judgements, k)) / k


def recall_at(ranking: Sequence[Id], judgements: Mapping[Id, float], k: int) -> float:
    """The share of the relevant documents that the first k hold.

    >>> recall_at(["a", "b"], {"a": 1, "c": 1}, k=2)
    0.5
    """
    relevant = _relevant(judgements)
    return sum(_hits(ranking, judgements, k)) / relevant if relevant else 0.0


def accuracy_at(ranking: Sequence[Id], judgements: Mapping[Id, float], k: int) -> float:
    """1 if a relevant document is among the first k, else 0.

    >>> accuracy_at(["a", "b"], {"b": 1}, k=1), accuracy_at(["a", "b"], {"b": 1}, k=2)
    (0.0, 1.0)
    """
    return float(any(_hits(ranking, judgements, k)))


_SCORES = {
    "ndcg": ndcg_at,
    "mrr": reciprocal_rank,
    "map": average_precision,
    "accuracy": accuracy_at,
    "precision": precision_at,
    "recall": recall_at,
}


def retrieval_scores(
    rankings: Mapping[Query, Sequence[Id]],
    judgements: Mapping[Query, Mapping[Id, float]],
    cutoffs: Mapping[str, Sequence[int]] = CUTOFFS,
) -> dict[str, float]:
    """Means over all queries, such as `ndcg@10`, by the names that are usual.

    Args:
      rankings: the ids of documents for each query, the best first.
      judgements: the grades of documents for each query. Queries without a relevant
        document, which no ranking can serve, are left out of the means.
      cutoffs: numbers of documents for "ndcg", "mrr", "map", "accuracy", "precision"
        and "recall".

    Raises:
      ValueError: if no query has a relevant document, or a judged query no ranking.

    >>> retrieval_scores({1: ["a", "b"]}, {1: {"b": 1}}, {"mrr": [10], "recall": [1]})
    {'mrr@10': 0.5, 'recall@1': 0.0}
    """
    queries = [x for x, grades in judgements.items() if _relevant(grades)]
    if not queries:
        raise ValueError(
            "no query has a relevant document; give judgements with grades above 0"
        )
    if missing := [x for x in queries if x not in rankings]:
        raise ValueError(
            f"queries without a ranking: {len(missing)}, {missing[0]!r} the first; "
            "give one for each"
        )
    return {
        f"{name}@{k}": float(
            np.mean([_SCORES[name](rankings[x], judgements[x], k) for x in queries])
        )
        for name, numbers in cutoffs.items()
        for k in numbers
    }


def _hits(
    ranking: Sequence[Id], judgements: Mapping[Id, float], k: int | None
) -> list[bool]:
    """True for each of the first k documents that is relevant."""
    if k is not None:
        _check_cutoff(k)
    return [judgements.get(x, 0) > 0 for x in ranking[:k]]


def _relevant(judgements: Mapping[Id, float]) -> int:
    return sum(grade > 0 for grade in judgements.values())


def _discounted(gains: Sequence[float]) -> float:
    ranks = np.arange(len(gains))
    return float(np.asarray(gains, np.float64) @ (1 / np.log2(ranks + 2)))


def _check_cutoff(k: int) -> None:
    if k < 1:
        raise ValueError(f"k={k}; it must be at least 1")
