"""`Model.evaluate`: scores of vectors on pairs, triplets, candidates and retrieval.

Rerankers have scores on pairs and candidates.
"""

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from bert_jax import metrics
from bert_jax.data import evaluation
from bert_jax.data.evaluation import Candidates, Data, Pairs, Retrieval, Row, Triplets
from bert_jax.inference import rank
from bert_jax.inference.nearest import embed_as, measure_of, nearest
from bert_jax.models import SequenceClassifier

if TYPE_CHECKING:
    from bert_jax.inference.model import Model


def evaluate(
    model: "Model",
    data: str | os.PathLike | Sequence[Row] | Data,
    kind: str | None,
    split: str,
    batch_size: int,
) -> dict[str, float]:
    """See `Model.evaluate`."""
    content = evaluation.read(data, kind, split)
    if _is_reranker(model):
        return _reranker_scores(model, content, batch_size)
    if isinstance(content, Pairs):
        return _pair_scores(model, content, batch_size)
    if isinstance(content, Triplets):
        return _triplet_scores(model, content, batch_size)
    if isinstance(content, Candidates):
        return _candidate_scores(model, content, batch_size)
    return _retrieval_scores(model, content, batch_size)


def similarities(a: np.ndarray, b: np.ndarray) -> dict[str, np.ndarray]:
    """Cosines and dot products `[N]` of rows `[N, D]`, by their names.

    >>> x = np.array([[3.0, 4.0]], np.float32)
    >>> {name: float(x[0]) for name, x in similarities(x, 2 * x).items()}
    {'cosine': 1.0, 'dot': 50.0}
    """
    dot = np.einsum("ND,ND->N", a, b)
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return {"cosine": dot / np.maximum(lengths, 1e-12), "dot": dot}


def _pair_scores(model: "Model", pairs: Pairs, batch_size: int) -> dict[str, float]:
    """Correlations, or for classes the scores of the best thresholds."""
    texts = list(dict.fromkeys([*pairs.firsts, *pairs.seconds]))
    vectors = dict(zip(texts, _vectors(model, texts, batch_size), strict=True))
    a, b = (
        np.stack([vectors[x] for x in side]) for side in (pairs.firsts, pairs.seconds)
    )
    scores: dict[str, float] = {}
    for name, values in similarities(a, b).items():
        if pairs.binary:
            of_pairs = metrics.pair_scores(pairs.labels, values)
            scores |= {f"{score}_{name}": x for score, x in of_pairs.items()}
        else:
            scores[f"pearson_{name}"] = metrics.pearson(pairs.labels, values)
            scores[f"spearman_{name}"] = metrics.spearman(pairs.labels, values)
    return scores


def _triplet_scores(
    model: "Model", data: Triplets, batch_size: int
) -> dict[str, float]:
    anchors = embed_as(model, "query", data.anchors, batch_size)
    documents = embed_as(
        model, "document", [*data.positives, *data.negatives], batch_size
    )
    positives, negatives = np.split(documents, 2)
    near, far = similarities(anchors, positives), similarities(anchors, negatives)
    return {
        f"accuracy_{name}": metrics.triplet_accuracy(near[name], far[name])
        for name in near
    }


def _is_reranker(model: "Model") -> bool:
    """True for a model with one score for a pair, and no pooling for vectors."""
    head = model.head
    is_row = isinstance(head, SequenceClassifier) and head.num_labels == 1
    return is_row and model.pooling is None


def _reranker_scores(model: "Model", data: Data, batch_size: int) -> dict[str, float]:
    """The scores of pairs by a model that reads both texts together."""
    if isinstance(data, Candidates):
        lists = [[*a, *b] for a, b in zip(data.positives, data.negatives, strict=True)]
        queries = [x for x, row in zip(data.queries, lists, strict=True) for _ in row]
        documents = [text for row in lists for text in row]
        scores = rank.pair_scores(model, queries, documents, batch_size)
        labels = [
            np.arange(len(row)) < len(positives)
            for row, positives in zip(lists, data.positives, strict=True)
        ]
        ends = np.cumsum([len(row) for row in lists])[:-1]
        return metrics.reranking_scores(labels, np.split(scores, ends))
    if not isinstance(data, Pairs):
        raise ValueError(
            f"a reranker scores pairs and candidates, not {type(data).__name__.lower()}"
            "; give one of these, or a model of vectors"
        )
    scores = rank.pair_scores(model, data.firsts, data.seconds, batch_size)
    if data.binary:
        return metrics.pair_scores(data.labels, scores)
    return {
        "pearson": metrics.pearson(data.labels, scores),
        "spearman": metrics.spearman(data.labels, scores),
    }


def _candidate_scores(
    model: "Model", data: Candidates, batch_size: int
) -> dict[str, float]:
    queries = embed_as(model, "query", data.queries, batch_size)
    lists = [[*a, *b] for a, b in zip(data.positives, data.negatives, strict=True)]
    texts = list(dict.fromkeys(text for documents in lists for text in documents))
    vectors = embed_as(model, "document", texts, batch_size)
    row = {text: i for i, text in enumerate(texts)}
    measure = measure_of(model)
    labels, scores = [], []
    for query, documents, positives in zip(queries, lists, data.positives, strict=True):
        of_documents = vectors[[row[text] for text in documents]]
        repeated = np.broadcast_to(query, of_documents.shape)
        scores.append(similarities(repeated, of_documents)[measure])
        labels.append(np.arange(len(documents)) < len(positives))
    return metrics.reranking_scores(labels, scores)


def _retrieval_scores(
    model: "Model", data: Retrieval, batch_size: int
) -> dict[str, float]:
    """Scores of rankings in which documents of equal scores are in order of ids."""
    ids = sorted(data.corpus)
    queries = {x: text for x, text in data.queries.items() if _any(data.judgements[x])}
    if not queries:
        raise ValueError(
            "no query has a relevant document; give judgements with grades above 0"
        )
    measure = measure_of(model)
    texts = [data.corpus[x] for x in ids]
    of_queries = embed_as(model, "query", list(queries.values()), batch_size)
    corpus = embed_as(model, "document", texts, batch_size)
    most = max(max(cutoffs) for cutoffs in metrics.CUTOFFS.values())
    rows = nearest(of_queries, [corpus], most, measure).rows
    rankings = {
        query: [ids[i] for i in row] for query, row in zip(queries, rows, strict=True)
    }
    judgements = {query: data.judgements[query] for query in queries}
    return metrics.retrieval_scores(rankings, judgements)


def _any(grades: Mapping[str, int]) -> bool:
    return any(grade > 0 for grade in grades.values())


def _vectors(model: "Model", texts: list[str], batch_size: int) -> np.ndarray:
    vectors = model.embed(texts, batch_size=batch_size)
    assert isinstance(vectors, np.ndarray)
    return vectors
