"""`Model.search`: the documents of a corpus that are nearest to queries."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeGuard

from bert_jax import files
from bert_jax.inference import checks
from bert_jax.inference import index as indexes
from bert_jax.inference.index import NAME, Corpus, Index
from bert_jax.inference.nearest import embed_as, measure_of, nearest
from bert_jax.tokenizers.text import listed

if TYPE_CHECKING:
    from bert_jax.inference.model import Model


class Hit(NamedTuple):
    """A document that a search returns.

    Attributes:
      id: its id in the corpus; in a list of texts its place from 0.
      score: its similarity to the query, the cosine unless the checkpoint says "dot".
      text: its text.

    >>> (hit,) = model.search("a b", ["c d", "a b"], k=1)
    >>> hit.id, round(hit.score, 4), hit.text
    (1, 1.0, 'a b')
    """

    id: str | int
    score: float
    text: str


def search(
    model: "Model",
    queries: str | Sequence[str],
    corpus: Corpus | Index,
    k: int,
    batch_size: int,
) -> list[Hit] | list[list[Hit]]:
    """See `Model.search`."""
    checks.check_count("k", k)
    checks.check_count("batch_size", batch_size)
    texts = listed(queries, "queries")
    for row, text in enumerate(texts):
        if not text.strip():
            raise ValueError(f"queries[{row}] is empty; write a question or a text")
    measure = measure_of(model)
    index = opened(model, corpus, batch_size)
    if not texts:
        return []
    vectors = embed_as(model, "query", texts, batch_size)
    results = nearest(vectors, index.vectors(), k, measure)
    hits = [
        [_hit(index, *x) for x in zip(rows, scores, strict=True)]
        for rows, scores in zip(
            results.rows.tolist(), results.scores.tolist(), strict=True
        )
    ]
    return hits[0] if isinstance(queries, str) else hits


def is_index(corpus: object) -> TypeGuard[str | os.PathLike]:
    """True for the path of a directory with an index, finished or not."""
    if not isinstance(corpus, str | os.PathLike):
        return False
    return (files.local_path(corpus) / NAME).is_file()


def _hit(index: Index, row: int, score: float) -> Hit:
    name, text = index.document(row)
    return Hit(name, score, text)


def opened(model: "Model", corpus: Corpus | Index, batch_size: int) -> Index:
    """The index of a corpus: as it is, of a directory, or made in memory."""
    if isinstance(corpus, Index):
        index = corpus
    elif is_index(corpus):
        index = Index.open(corpus)
    else:
        return indexes.index(model, corpus, None, batch_size)
    indexes.check_model(index, model)
    return index
