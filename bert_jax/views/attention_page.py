"""The page that shows attention; what it draws is in static/attention*.js."""

import numpy as np

from bert_jax.views import measures
from bert_jax.views.packed import packed, share_error, shares, signed, unsigned
from bert_jax.views.page import built

SCRIPTS = (
    *("page.js", "attention_data.js", "attention_lines.js", "attention_grid.js"),
    *("attention_head.js", "attention_vectors.js", "charts.js"),
    *("attention_layers.js", "attention.js"),
)
# Bits of weights, and of queries and keys: the first that makes a page of at most LIMIT
# characters. The last are taken for what is longer.
GRADES = ((16, 16), (14, 12), (12, 10), (11, 8), (10, 7), (9, 7), (8, 7))
LIMIT = 3_900_000  # leaves 100,000 of 4 MB for the script, the style and the tokens


def page(
    tokens: list[str],
    weights: np.ndarray,
    segments: np.ndarray | None = None,
    queries: np.ndarray | None = None,
    keys: np.ndarray | None = None,
    source: list[str] | None = None,
) -> str:
    """The page as HTML; see `Attention` for the arguments.

    Rollout and distance are those of tokens that look at each other: with `source`
    there is neither.
    """
    check(tokens, weights, segments, queries, keys, source)
    rolled, distance = _of_itself(weights) if source is None else (None, None)
    for bits in GRADES:
        arrays, facts = _rounded(weights, rolled, queries, keys, *bits)
        numbers = packed(arrays)
        if len(numbers) <= LIMIT:
            break
    if queries is not None:
        told = facts["vectors"]
        told["error"] = _score_error(queries, keys, arrays[-2:], told)
    facts |= {
        "tokens": tokens,
        "source": source,
        "segments": None if segments is None else segments.tolist(),
        "shape": weights.shape,
        "distance": distance,
        "entropy": _short(measures.attention_entropy(weights)),
    }
    return built("Attention: " + " ".join(tokens), SCRIPTS, facts, numbers)


def check(tokens, weights, segments, queries, keys, source) -> None:
    """Raises ValueError for arrays that do not belong together."""
    if source is None:
        measures.check_square(weights)
    elif segments is not None:
        raise ValueError("segments are those of a text and its pair; give no source")
    else:
        measures.check_shape(weights)
    if (queries is None) != (keys is None):
        raise ValueError("queries come with keys: give both or neither")
    if not np.isfinite(weights).all():
        raise ValueError("weights are not all finite; are the model's parameters?")
    *heads, length, seen = weights.shape
    size = np.shape(queries)[-1] if queries is not None else 0
    for name, x, shape in (
        ("tokens", tokens, (length,)),
        ("segments", segments, (length,)),
        ("source", source, (seen,)),
        ("queries", queries, (*heads, length, size)),
        ("keys", keys, (*heads, seen, size)),
    ):
        if x is not None and np.shape(x) != shape:
            raise ValueError(
                f"{name} have the shape {list(np.shape(x))}; weights of "
                f"{list(weights.shape)} need {list(shape)}"
            )


def _rounded(weights, rolled, queries, keys, weight_bits, vector_bits):
    """uint16 arrays in the order the script reads them, and how to read them."""
    found = [weights] if rolled is None else [weights, rolled]
    arrays = [shares(x, weight_bits) for x in found]
    facts = {"bits": weight_bits, "error": share_error(weight_bits), "vectors": None}
    if queries is not None:
        (q, q_step), (k, k_step) = (signed(x, vector_bits) for x in (queries, keys))
        arrays += [q, k]
        steps = [q_step.tolist(), k_step.tolist()]
        facts["vectors"] = {"size": q.shape[-1], "bits": vector_bits, "steps": steps}
    return arrays, facts


def _of_itself(weights):
    """What there is where tokens look at each other: rollout, and how far they look."""
    return measures.rollout(weights), _short(measures.attention_distance(weights))


def _score_error(queries, keys, rounded, told):
    """The most by which a score `q @ k / K ** 0.5` of rounded vectors is off."""
    exact = queries @ np.swapaxes(keys, 2, 3)
    q, k = (
        unsigned(x, np.array(step), told["bits"])
        for x, step in zip(rounded, told["steps"], strict=True)
    )
    off = np.abs(exact - q @ np.swapaxes(k, 2, 3)).max()
    return float(off / told["size"] ** 0.5)


def _short(x):
    """For JSON, in six digits."""
    return [[float(f"{value:.6g}") for value in row] for row in x]
