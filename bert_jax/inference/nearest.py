"""Vectors of queries and of documents, and the nearest of them, block by block."""

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.inference import checks
from bert_jax.inference.batching import power_of_two

if TYPE_CHECKING:
    from bert_jax.inference.model import Model

# Names of the prompts that a checkpoint can have for either side of a search.
PROMPTS = {"query": ("query",), "document": ("document", "passage", "corpus")}

# Queries compared at once, and rows of the corpus that are on the device at once.
QUERIES, ROWS = 1024, 16384

MEASURES = ("cosine", "dot")


def embed_as(
    model: "Model", side: str, texts: Sequence[str], batch_size: int
) -> np.ndarray:
    """Vectors `[N, D]` of texts with the prompt of a `side`, "query" or "document".

    Raises:
      ValueError: for a model of sparse vectors or of late interaction.
    """
    if model.sparse is not None:
        raise ValueError(
            "this model makes sparse vectors; search with model.embed_sparse(queries) "
            "@ model.embed_sparse(documents).T"
        )
    if model.late is not None:
        raise ValueError(
            "this model has a vector for each token; compare the results of "
            "model.embed_tokens with bert_jax.inference.maxsim"
        )
    prompt = prompt_name(model, side)
    vectors = model.embed(texts, batch_size=batch_size, prompt=prompt)
    assert isinstance(vectors, np.ndarray)
    return vectors


def prompt_name(model: "Model", side: str) -> str | None:
    """The name of the prompt of a side; None, the default one, if there is none."""
    settings = model.sparse or model.pooling
    known = dict(settings.prompts) if settings else {}
    return next((name for name in PROMPTS[side] if name in known), None)


def measure_of(model: "Model") -> str:
    """The measure of two vectors that a checkpoint names.

    If it names none, it is the cosine, and the dot product of sparse vectors.
    """
    settings = model.sparse or model.pooling
    usual = "dot" if model.sparse else "cosine"
    name = (settings and settings.similarity) or usual
    if name not in MEASURES:
        raise ValueError(
            f"the model compares vectors by {name!r}, and only {', '.join(MEASURES)} "
            "are supported; set similarity in its pooling"
        )
    return name


class Nearest(NamedTuple):
    """The nearest rows of a corpus, the best first.

    Attributes:
      scores: float32 `[Q, k]`.
      rows: their numbers in the corpus, `[Q, k]`; of equal scores the lower first.
    """

    scores: np.ndarray
    rows: np.ndarray


def nearest(
    queries: np.ndarray, blocks: Iterable[np.ndarray], k: int, measure: str = "cosine"
) -> Nearest:
    """The `k` rows of a corpus nearest to each query, or all if there are fewer.

    Args:
      queries: float32 `[Q, D]`.
      blocks: the vectors of the corpus in order, `[n, D]` each.
      k: rows for each query.
      measure: "cosine" or "dot".
    """
    checks.check_count("k", k)
    width = min(QUERIES, power_of_two(len(queries)))
    groups = [_scaled(_padded(part, width), measure) for part in _parts(queries, width)]
    none = jnp.full((width, k), -jnp.inf, jnp.float32), jnp.zeros((width, k), jnp.int32)
    best, total = [none for _ in groups], 0
    for part in (part for block in blocks for part in _parts(block, ROWS)):
        rows = _padded(part, min(ROWS, power_of_two(len(part))))
        scaled, place = _scaled(rows, measure), np.array([total, len(part)], np.int32)
        best = [
            _merged(*old, group, scaled, place)
            for old, group in zip(best, groups, strict=True)
        ]
        total += len(part)
    scores, numbers = (
        np.concatenate([np.asarray(x) for x in arrays])[: len(queries), :total]
        for arrays in zip(*best, strict=True)
    )
    return Nearest(scores, numbers)


@jax.jit
def _merged(
    scores: jax.Array,
    numbers: jax.Array,
    queries: jax.Array,
    rows: jax.Array,
    place: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """The best `[Q, k]` so far, and those among further rows.

    `place` holds the number of the first row, and how many rows are no padding.
    """
    first, count = place
    # Accelerators would multiply float32 in fewer bits, and change the order.
    products = jnp.matmul(queries, rows.T, precision=jax.lax.Precision.HIGHEST)
    exists = jnp.arange(len(rows)) < count
    products = jnp.where(exists[None], products, -jnp.inf)
    k = scores.shape[1]
    # Of equal values top_k takes the first, so that lower numbers win throughout.
    new_scores, new = jax.lax.top_k(products, min(k, len(rows)))
    scores = jnp.concatenate([scores, new_scores], 1)
    numbers = jnp.concatenate([numbers, first + new], 1)
    scores, chosen = jax.lax.top_k(scores, k)
    return scores, jnp.take_along_axis(numbers, chosen, 1)


@functools.partial(jax.jit, static_argnums=1)
def _scaled(x: jax.Array, measure: str) -> jax.Array:
    """Vectors `[N, D]` whose products are the measure."""
    x = x.astype(jnp.float32)
    if measure == "dot":
        return x
    return x / jnp.maximum(jnp.linalg.norm(x, axis=1, keepdims=True), 1e-12)


def _parts(x: np.ndarray, size: int) -> Iterator[np.ndarray]:
    """The rows in parts of at most `size`."""
    yield from (x[first : first + size] for first in range(0, len(x), size))


def _padded(x: np.ndarray, size: int) -> np.ndarray:
    """The rows with zeros below, `size` in all."""
    return np.pad(x, ((0, size - len(x)), (0, 0)))
