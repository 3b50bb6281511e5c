"""`Model.rank`: documents in the order of their scores for a query."""

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from flax import linen as nn

from bert_jax.files import counted
from bert_jax.inference import batching, checks
from bert_jax.inference.classify import TRUNCATION, scores_of
from bert_jax.models import SequenceClassifier
from bert_jax.pretrained import cross_encoder
from bert_jax.tokenizers.text import as_list, listed

if TYPE_CHECKING:
    from bert_jax.inference.model import Model


class Ranked(NamedTuple):
    """A document, its score, and its number among those that were given.

    >>> best, other = reranker.rank("a b", ["c", "d e"])
    >>> best.score >= other.score, sorted([best.number, other.number])
    (True, [0, 1])
    """

    text: str
    score: float
    number: int


def rank(
    model: "Model",
    query: str | Sequence[str],
    documents: Sequence[str] | Sequence[Sequence[str]],
    k: int | None,
    batch_size: int,
) -> list[Ranked] | list[list[Ranked]]:
    """See `Model.rank`."""
    check_head(model.head)
    if k is not None:
        checks.check_count("k", k)
    is_one = isinstance(query, str)
    queries = listed(query, "query")
    lists: list[Any] = [documents] if is_one else as_list(documents, "documents")
    if len(queries) != len(lists):
        raise ValueError(
            f"{len(queries)} queries came with {counted(len(lists), 'list')} of "
            "documents; give one list for each query"
        )
    texts = [_documents(row, x) for row, x in enumerate(lists)]
    firsts = [x for x, row in zip(queries, texts, strict=True) for _ in row]
    scores = pair_scores(model, firsts, [x for row in texts for x in row], batch_size)
    ends = np.cumsum([len(row) for row in texts])
    # The last part of the split is empty.
    by_query = zip(texts, np.split(scores, ends), strict=False)
    ranked = [_ranked(row, x)[:k] for row, x in by_query]
    return ranked[0] if is_one else ranked


def pair_scores(
    model: "Model",
    queries: Sequence[str],
    documents: Sequence[str],
    batch_size: int,
) -> np.ndarray:
    """Scores `[N]` of N documents, each for a query of its own."""
    scores = np.zeros(len(queries), np.float32)
    activation = cross_encoder.activation(model.extra) or cross_encoder.USUAL
    step = functools.partial(scores_of, model.head, activation, model.params)
    truncation = model.extra.get(TRUNCATION, "head")
    for result in batching.run_texts(
        model, step, queries, documents, batch_size=batch_size, truncation=truncation
    ):
        scores[result.rows] = result.output[:, 0]
    return scores


def check_head(head: nn.Module) -> None:
    """Checks that `head` has one score for a pair."""
    remedy = 'train one with bert_jax.finetune(model, "rerank", train=..., dev=...)'
    checks.check_head(head, (SequenceClassifier,), "rank", remedy)
    if head.num_labels != 1:
        raise ValueError(
            f"this model cannot rank: it has {head.num_labels} labels, and no single "
            f"score; use classify, or {remedy}"
        )


def _documents(row: int, documents: Any) -> list[str]:
    if isinstance(documents, str):
        raise ValueError(
            f"documents[{row}] is {documents!r:.60}; give a list of texts to each query"
        )
    return listed(documents, f"documents[{row}]")


def _ranked(documents: Sequence[str], scores: np.ndarray) -> list[Ranked]:
    order = np.argsort(-scores, kind="stable").tolist()
    return [Ranked(documents[i], float(scores[i]), i) for i in order]
