"""`Model.evaluate`: scores on pairs, triplets, candidates and retrieval.

Of a model that scores pairs the scores are compared, of all others the similarities of
vectors.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_jax import metrics
from bert_jax.data import evaluation
from bert_jax.data.evaluation import Candidates, Data, Pairs, Retrieval, Row, Triplets
from bert_jax.inference import rank
from bert_jax.inference.embed_tokens import maxsim
from bert_jax.inference.nearest import embed_as, measure_of, nearest, prompt_name
from bert_jax.models import SequenceClassifier

if TYPE_CHECKING:
    from bert_jax.inference.model import Model

# Sparse vectors that are written out with all their zeros at once.
SPARSE_ROWS = 1024


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
    if isinstance(content, Retrieval):
        return _retrieval_scores(model, content, batch_size)
    if model.late is not None:
        return _late_scores(model, content, batch_size)
    if isinstance(content, Pairs):
        return _pair_scores(model, content, batch_size)
    if isinstance(content, Triplets):
        return _triplet_scores(model, content, batch_size)
    return _candidate_scores(model, content, batch_size)


def similarities(a: Any, b: Any) -> dict[str, np.ndarray]:
    """Cosines and dot products `[N]` of rows `[N, D]`, dense or sparse, by name.

    >>> x = np.array([[3.0, 4.0]], np.float32)
    >>> {name: float(x[0]) for name, x in similarities(x, 2 * x).items()}
    {'cosine': 1.0, 'dot': 50.0}
    """
    dot = _products(a, b)
    lengths = np.sqrt(_products(a, a)) * np.sqrt(_products(b, b))
    return {"cosine": dot / np.maximum(lengths, 1e-12), "dot": dot}


def _products(a: Any, b: Any) -> np.ndarray:
    """Dot products `[N]` of rows."""
    if isinstance(a, np.ndarray):
        return np.einsum("ND,ND->N", a, b, dtype=np.float64)
    return np.asarray(a.multiply(b).sum(1)).ravel()


def _vectors(
    model: "Model", side: str | None, texts: Sequence[str], batch_size: int
) -> Any:
    """Vectors `[N, D]` of texts, those of a sparse model as a CSR matrix.

    A `side` has its prompt, None the default one.
    """
    if model.sparse is not None:
        prompt = side and prompt_name(model, side)
        return model.embed_sparse(texts, prompt=prompt, batch_size=batch_size)
    if side is None:
        return model.embed(texts, batch_size=batch_size)
    return embed_as(model, side, texts, batch_size)


def _pair_scores(model: "Model", pairs: Pairs, batch_size: int) -> dict[str, float]:
    """Correlations, or for classes the scores of the best thresholds."""
    texts = list(dict.fromkeys([*pairs.firsts, *pairs.seconds]))
    vectors = _vectors(model, None, texts, batch_size)
    row = {text: i for i, text in enumerate(texts)}
    a, b = (vectors[[row[x] for x in side]] for side in (pairs.firsts, pairs.seconds))
    scores: dict[str, float] = {}
    for name, values in similarities(a, b).items():
        for score, x in _scores_of_pairs(pairs, values).items():
            scores[f"{score}_{name}"] = x
    return scores


def _scores_of_pairs(pairs: Pairs, values: np.ndarray) -> dict[str, float]:
    if pairs.binary:
        return metrics.pair_scores(pairs.labels, values)
    return {
        "pearson": metrics.pearson(pairs.labels, values),
        "spearman": metrics.spearman(pairs.labels, values),
    }


def _triplet_scores(
    model: "Model", data: Triplets, batch_size: int
) -> dict[str, float]:
    anchors = _vectors(model, "query", data.anchors, batch_size)
    texts = [*data.positives, *data.negatives]
    documents, count = _vectors(model, "document", texts, batch_size), len(data.anchors)
    near = similarities(anchors, documents[:count])
    far = similarities(anchors, documents[count:])
    return {
        f"accuracy_{name}": metrics.triplet_accuracy(near[name], far[name])
        for name in near
    }


def _candidate_scores(
    model: "Model", data: Candidates, batch_size: int
) -> dict[str, float]:
    lists = [[*a, *b] for a, b in zip(data.positives, data.negatives, strict=True)]
    texts = list(dict.fromkeys(text for documents in lists for text in documents))
    queries = _vectors(model, "query", data.queries, batch_size)
    vectors = _vectors(model, "document", texts, batch_size)
    row = {text: i for i, text in enumerate(texts)}
    pairs = [(i, row[text]) for i, x in enumerate(lists) for text in x]
    firsts, seconds = map(list, zip(*pairs, strict=True))
    values = similarities(queries[firsts], vectors[seconds])[measure_of(model)]
    return _ranking_scores(data, values)


def _ranking_scores(data: Candidates, values: np.ndarray) -> dict[str, float]:
    """Scores of candidates `[N]`, those of one query after the other."""
    both = list(zip(data.positives, data.negatives, strict=True))
    labels = [np.arange(len(a) + len(b)) < len(a) for a, b in both]
    ends = np.cumsum([len(x) for x in labels])[:-1]
    return metrics.reranking_scores(labels, np.split(values, ends))


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
    texts = [data.corpus[x] for x in ids]
    most = max(max(cutoffs) for cutoffs in metrics.CUTOFFS.values())
    rows = _nearest_rows(model, list(queries.values()), texts, most, batch_size)
    rankings = {
        query: [ids[i] for i in row] for query, row in zip(queries, rows, strict=True)
    }
    judgements = {query: data.judgements[query] for query in queries}
    return metrics.retrieval_scores(rankings, judgements)


def _nearest_rows(
    model: "Model",
    queries: Sequence[str],
    corpus: Sequence[str],
    k: int,
    batch_size: int,
) -> np.ndarray:
    """The numbers `[Q, k]` of the documents with the best scores for each query."""
    if model.late is not None:
        of_corpus = model.embed_tokens(corpus, "document", batch_size)
        scores = maxsim(model.embed_tokens(queries, "query", batch_size), of_corpus)
        return np.argsort(-scores, axis=1, kind="stable")[:, :k]
    measure = measure_of(model)
    of_queries = _vectors(model, "query", queries, batch_size)
    vectors = _vectors(model, "document", corpus, batch_size)
    parts = (nearest(x, _dense(vectors), k, measure).rows for x in _dense(of_queries))
    return np.concatenate(list(parts))


def _dense(vectors: Any) -> Iterator[np.ndarray]:
    """Vectors whole, or those of a sparse matrix in parts."""
    if isinstance(vectors, np.ndarray):
        yield vectors
        return
    for first in range(0, vectors.shape[0], SPARSE_ROWS):
        yield vectors[first : first + SPARSE_ROWS].toarray()


def _any(grades: Mapping[str, int]) -> bool:
    return any(grade > 0 for grade in grades.values())


def _late_scores(model: "Model", data: Data, batch_size: int) -> dict[str, float]:
    """The same scores of a model that compares the vectors of tokens."""
    if isinstance(data, Triplets):
        queries = model.embed_tokens(data.anchors, "query", batch_size)
        near, far = (
            _maxsims(queries, model.embed_tokens(texts, "document", batch_size))
            for texts in (data.positives, data.negatives)
        )
        return {"accuracy": metrics.triplet_accuracy(near, far)}
    if isinstance(data, Candidates):
        queries = model.embed_tokens(data.queries, "query", batch_size)
        lists = zip(data.positives, data.negatives, strict=True)
        values = [
            maxsim([query], model.embed_tokens([*a, *b], "document", batch_size))[0]
            for query, (a, b) in zip(queries, lists, strict=True)
        ]
        return _ranking_scores(data, np.concatenate(values))
    raise ValueError(
        "a model of late interaction compares queries with documents; give triplets, "
        "candidates or a folder for retrieval"
    )


def _maxsims(
    queries: Sequence[np.ndarray], documents: Sequence[np.ndarray]
) -> np.ndarray:
    """The scores `[N]` of each query and its document."""
    both = zip(queries, documents, strict=True)
    return np.array([maxsim([a], [b])[0, 0] for a, b in both])


def _is_reranker(model: "Model") -> bool:
    """True for a model with one score for a pair, and no pooling for vectors."""
    head = model.head
    is_row = isinstance(head, SequenceClassifier) and head.num_labels == 1
    return is_row and model.pooling is None


def _reranker_scores(model: "Model", data: Data, batch_size: int) -> dict[str, float]:
    """The same scores of a model that reads both texts of a pair together."""
    if isinstance(data, Retrieval):
        raise ValueError(
            "a reranker scores pairs, which takes too long for a whole corpus; give "
            "rows of a query, positive and negative, or a model of vectors"
        )
    if isinstance(data, Pairs):
        values = rank.pair_scores(model, data.firsts, data.seconds, batch_size)
        return _scores_of_pairs(data, values)
    if isinstance(data, Triplets):
        near, far = (
            rank.pair_scores(model, data.anchors, texts, batch_size)
            for texts in (data.positives, data.negatives)
        )
        return {"accuracy": metrics.triplet_accuracy(near, far)}
    rows = zip(data.queries, data.positives, data.negatives, strict=True)
    pairs = [(query, text) for query, a, b in rows for text in (*a, *b)]
    firsts, seconds = map(list, zip(*pairs, strict=True))
    values = rank.pair_scores(model, firsts, seconds, batch_size)
    return _ranking_scores(data, values)
