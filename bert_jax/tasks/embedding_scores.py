"""Scores of sentence vectors on held-out rows, for each kind of rows."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_jax import metrics
from bert_jax.data.text_groups import LABELLED, PAIRS, SCORED, TRIPLETS, TextGroups

# The scores of each kind; the first decides which checkpoint is best.
SCORES = {
    SCORED: ("spearman", "pearson"),
    PAIRS: ("mrr", "accuracy@1"),
    TRIPLETS: ("accuracy",),
    LABELLED: ("accuracy",),
}

# Rows whose products with all others are in memory at once.
BLOCK = 1024


def score(groups: TextGroups, vectors: np.ndarray) -> dict[str, float]:
    """The scores of vectors `[N, C, E]` of a file's rows; {} where there are none.

    Scored pairs are scored by the correlation of their cosines with the file's numbers.
    Of pairs, the positive is searched by its anchor among those of all rows. Triplets
    are right where the positive is closer than each negative, labelled texts where the
    nearest other text has the same label. All compare by the cosine.
    """
    if groups.kind == SCORED and groups.labels is not None:
        labels, values = compared(groups, vectors)
        return {
            "spearman": metrics.spearman(labels, values),
            "pearson": metrics.pearson(labels, values),
        }
    if groups.kind == PAIRS:
        place = ranks(groups, vectors)
        return {
            "mrr": float(np.mean(1 / place)),
            "accuracy@1": float(np.mean(place == 1)),
        }
    if groups.kind == TRIPLETS:
        positive, negative = closest(groups, vectors)
        return {"accuracy": float(np.mean(positive > negative))}
    if groups.kind == LABELLED and groups.labels:
        labels = np.asarray(groups.labels)
        return {"accuracy": metrics.accuracy(labels, labels[nearest(vectors)])}
    return {}


def columns(groups: TextGroups, vectors: np.ndarray) -> dict[str, Sequence[Any]]:
    """Predictions for each row by the names of columns of a table.

    Scored pairs have `prediction`, their cosine, and `label`; pairs the `rank` of the
    positive among those of all rows and their `cosine`; triplets the cosines of the
    `positive` and of the closest `negative`; labelled texts the row of the `nearest`
    text, its label as `prediction`, and `label`.
    """
    if groups.kind == SCORED:
        values, labels = cosines(vectors), np.asarray(groups.labels)
        return {
            "prediction": [" ".join(_decimals(row)) for row in values],
            "label": [" ".join(map(str, row)) for row in labels.tolist()],
        }
    if groups.kind == PAIRS:
        return {
            "rank": ranks(groups, vectors).tolist(),
            "cosine": _decimals(cosines(vectors)[:, 0]),
        }
    if groups.kind == TRIPLETS:
        positive, negative = closest(groups, vectors)
        return {"positive": _decimals(positive), "negative": _decimals(negative)}
    if groups.kind == LABELLED:
        rows, names = nearest(vectors).tolist(), groups.labels or []
        guesses = [names[row] for row in rows]
        return {"nearest": rows, "prediction": guesses, "label": names}
    return {}


def _decimals(values: np.ndarray) -> list[str]:
    return [f"{x:.4f}" for x in values]


def constant_score(groups: TextGroups) -> float:
    """The first of `SCORES` for vectors that say nothing of their texts."""
    if groups.kind == PAIRS:
        return float(np.mean(1 / np.arange(1, len(groups) + 1)))
    if groups.kind == TRIPLETS:
        return float(np.mean([1 / sum(map(bool, row[1:])) for row in groups.texts]))
    if groups.kind == LABELLED:
        _, counts = np.unique(groups.labels or (), return_counts=True)
        return float(counts.max() / counts.sum())
    return 0.0


def cosines(vectors: np.ndarray) -> np.ndarray:
    """`[N, C - 1]`: the cosines of each row's first vector and its others."""
    x = unit(vectors)
    return np.einsum("ne,nce->nc", x[:, 0], x[:, 1:])


def compared(groups: TextGroups, vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The scores of existing texts, and their cosines, or margins of both."""
    labels, values = np.asarray(groups.labels), cosines(vectors)
    exists = _exists(groups)
    if labels.shape[1] < values.shape[1]:
        values, exists = values[:, :1] - values[:, 1:], exists[:, 1:]
    return labels[exists], values[exists]


def _exists(groups: TextGroups) -> np.ndarray:
    """bool `[N, C - 1]`: False where a row has fewer texts than others."""
    return np.array([[bool(text) for text in row[1:]] for row in groups.texts])


def ranks(groups: TextGroups, vectors: np.ndarray) -> np.ndarray:
    """`[N]`: the place, from 1, of each row's positive among those of all rows.

    The other positives of the same anchor, and copies of its own one, do not count.
    """
    x = unit(vectors)
    own = np.einsum("ne,ne->n", x[:, 0], x[:, 1])
    # The positives of each anchor, and the rows of each positive.
    positives: dict[str, set[str]] = {}
    rows: dict[str, list[int]] = {}
    for number, (anchor, positive, *_) in enumerate(groups.texts):
        positives.setdefault(anchor, set()).add(positive)
        rows.setdefault(positive, []).append(number)
    places = []
    for start in range(0, len(x), BLOCK):
        block = slice(start, start + BLOCK)
        closer = x[block, 0] @ x[:, 1].T > own[block, None]
        for above, (anchor, *_) in zip(closer, groups.texts[block], strict=True):
            for text in positives[anchor]:
                above[rows[text]] = False
        places.append(1 + closer.sum(1))
    return np.concatenate(places)


def closest(groups: TextGroups, vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The cosines of each row's positive, and of its closest negative, `[N]` each."""
    values = np.where(_exists(groups), cosines(vectors), -np.inf)
    return values[:, 0], values[:, 1:].max(1)


def nearest(vectors: np.ndarray) -> np.ndarray:
    """`[N]`: the row whose first vector is the closest to that of each other row."""
    x, rows = unit(vectors)[:, 0], []
    for start in range(0, len(x), BLOCK):
        products = x[start : start + BLOCK] @ x.T
        own = np.arange(len(products))
        products[own, start + own] = -np.inf
        rows.append(products.argmax(1))
    return np.concatenate(rows)


def unit(vectors: np.ndarray) -> np.ndarray:
    """Vectors `[..., E]` scaled to length 1, in float64."""
    x = np.asarray(vectors, np.float64)
    return x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-12)
