"""The page that shows attention; static/attention*.js draw it."""

import math
from typing import Any

import numpy as np

from bert_jax.views import measures, page
from bert_jax.views.packing import (
    pack,
    restore_vectors,
    round_shares,
    round_vectors,
    share_error,
)

SCRIPTS = (
    *("page.js", "attention_data.js", "attention_text.js", "attention_lines.js"),
    *("attention_matrix.js", "attention_grid.js", "attention_head.js"),
    *("attention_vectors.js", "charts.js", "attention_layers.js", "attention.js"),
)
# Bits of weights, and of queries and keys: the first that makes a page of at most LIMIT
# characters. The last are taken for longer pages.
GRADES = ((16, 16), (14, 12), (12, 10), (11, 8), (10, 7), (9, 7), (8, 7))
NEAR = 20  # the most tokens between the first words that are shown
LIMIT = 3_900_000  # leaves 100,000 of 4 MB for the script, the style and the tokens


def html(
    tokens: list[str],
    weights: np.ndarray,
    segments: np.ndarray | None = None,
    queries: np.ndarray | None = None,
    keys: np.ndarray | None = None,
    source: list[str] | None = None,
    specials: tuple[str, ...] = (),
) -> str:
    """The page as HTML; see `Attention` for the arguments.

    Rollout and distance are defined for tokens that look at each other: a page with
    `source` has neither.
    """
    check(tokens, weights, segments, queries, keys, source)
    rollout = distance = None
    if source is None:
        rollout = measures.rollout(weights)
        distance = _short(measures.attention_distance(weights))
    for bits, vector_bits in GRADES:
        bits = max(bits, _fewest_bits(weights.shape[-1]))
        arrays, facts = _rounded(weights, rollout, queries, keys, bits, vector_bits)
        numbers = pack(arrays)
        if len(numbers) <= LIMIT:
            break
    if queries is not None and keys is not None:
        rounding = facts["vectors"]
        rounding["error"] = _score_error(queries, keys, arrays[-2:], rounding)
    facts |= {
        "tokens": tokens,
        "source": source,
        "specials": specials,
        "start": _start(tokens, source, weights, specials),
        "segments": None if segments is None else segments.tolist(),
        "shape": weights.shape,
        "distance": distance,
        "entropy": _short(measures.attention_entropy(weights)),
    }
    return page.build("Attention: " + " ".join(tokens), SCRIPTS, facts, numbers)


def _fewest_bits(length: int) -> int:
    """Bits that a weight needs so that an even head is more than one step from 0."""
    return math.ceil(math.log2(2 * length))


def _start(
    tokens: list[str],
    source: list[str] | None,
    weights: np.ndarray,
    specials: tuple[str, ...],
) -> dict[str, int]:
    """The layer, head and token of the strongest weight that tells something.

    It is one between words, and in one text between words that are near each other but
    no neighbours; where there are none, the strongest of all.
    """
    rows, columns = (
        np.array([any(map(str.isalpha, x)) and x not in specials for x in names])
        for names in (tokens, source or tokens)
    )
    wanted = np.outer(rows, columns)
    if source is None:
        place = np.arange(len(tokens))
        apart = np.abs(np.subtract.outer(place, place))
        wanted &= (apart > 1) & (apart <= NEAR)
    masked = weights * wanted if wanted.any() else weights
    layer, head, token, _ = np.unravel_index(masked.argmax(), masked.shape)
    return {"layer": int(layer), "head": int(head), "token": int(token)}


def check(
    tokens: list[str],
    weights: np.ndarray,
    segments: np.ndarray | None,
    queries: np.ndarray | None,
    keys: np.ndarray | None,
    source: list[str] | None,
) -> None:
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
        raise ValueError("weights are not all finite; check the model's parameters")
    *heads, length, source_length = weights.shape
    size = np.shape(queries)[-1] if queries is not None else 0
    for name, x, shape in (
        ("tokens", tokens, (length,)),
        ("segments", segments, (length,)),
        ("source", source, (source_length,)),
        ("queries", queries, (*heads, length, size)),
        ("keys", keys, (*heads, source_length, size)),
    ):
        if x is not None and np.shape(x) != shape:
            raise ValueError(
                f"{name} have the shape {list(np.shape(x))}; weights of "
                f"{list(weights.shape)} need {list(shape)}"
            )


def _rounded(
    weights: np.ndarray,
    rollout: np.ndarray | None,
    queries: np.ndarray | None,
    keys: np.ndarray | None,
    weight_bits: int,
    vector_bits: int,
) -> tuple[list[np.ndarray], dict[str, Any]]:
    """uint16 arrays in the order the script reads them, and how to read them."""
    shares = [weights] if rollout is None else [weights, rollout]
    arrays = [round_shares(x, weight_bits) for x in shares]
    facts: dict[str, Any] = {
        "bits": weight_bits,
        "error": share_error(weight_bits),
        "vectors": None,
    }
    if queries is not None and keys is not None:
        (q, q_step), (k, k_step) = (
            round_vectors(x, vector_bits) for x in (queries, keys)
        )
        arrays += [q, k]
        steps = [q_step.tolist(), k_step.tolist()]
        facts["vectors"] = {"size": q.shape[-1], "bits": vector_bits, "steps": steps}
    return arrays, facts


def _score_error(
    queries: np.ndarray,
    keys: np.ndarray,
    rounded: list[np.ndarray],
    rounding: dict[str, Any],
) -> float:
    """The largest error of a score `q @ k / K ** 0.5` of rounded vectors."""
    exact = queries @ np.swapaxes(keys, 2, 3)
    q, k = (
        restore_vectors(x, np.array(step), rounding["bits"])
        for x, step in zip(rounded, rounding["steps"], strict=True)
    )
    off = np.abs(exact - q @ np.swapaxes(k, 2, 3)).max()
    return float(off / rounding["size"] ** 0.5)


def _short(x: np.ndarray) -> list[list[float]]:
    """Numbers for JSON, in six digits."""
    return [[float(f"{value:.6g}") for value in row] for row in x]
