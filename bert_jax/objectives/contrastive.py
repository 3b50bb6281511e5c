"""Losses of sentence vectors: pure functions of the vectors of a batch.

A batch has B rows of C texts each: a query, the text that fits it, and texts that do
not. Each loss takes `VectorGroups` and returns its (sum, count). Where the rest of the
batch serves as negatives, that is the whole batch on all devices: under `jit`, XLA
gathers the vectors of a batch that is split over them. `LOSSES` lists all losses.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bert_jax.objectives.distillation import Total

# The logit of texts that are no candidates; finite, so that gradients are.
VERY_LOW = -1e9

# The column of each row whose text looks for others, and the columns that it looks in.
DIRECTIONS = {
    "query_to_doc": (0, slice(1, None)),
    "query_to_query": (0, slice(0, 1)),
    "doc_to_query": (1, slice(0, 1)),
    "doc_to_doc": (1, slice(1, None)),
}
# Here the texts of the own row are no candidates.
SAME_SIDE = ("query_to_query", "doc_to_doc")

HARDNESS = ("in_batch", "hard", "all")


class VectorGroups(NamedTuple):
    """The vectors of a batch of texts, in rows of C, and the data that rates them.

    Attributes:
      vectors: `[B, C, D]`, of any length: losses scale them where they need it.
      exists: bool `[B, C]`, False for a missing text and for all texts of a row that
        only fills the batch. Their vectors never count, not even if they are NaN.
      labels: scores `[B, C - 1]` of the first text with each other one (`[B]` will do
        where C is 2), or int classes `[B]`.
      teacher: `[B, C, D]`, a teacher's vectors of the same texts.
      guide: `[B, C, G]`, the vectors of a model that spots false negatives.

    >>> vectors = jnp.ones((5, 3, 12))  # five rows of a query and two other texts
    >>> groups = VectorGroups(vectors, jnp.ones((5, 3), bool).at[3, 2].set(False))
    >>> int(triplet(groups)[1])  # one has no negative
    4
    """

    vectors: jax.Array
    exists: jax.Array
    labels: jax.Array | None = None
    teacher: jax.Array | None = None
    guide: jax.Array | None = None


def multiple_negatives(
    groups: VectorGroups,
    *,
    scale: float = 20.0,
    cosine: bool = True,
    directions: Sequence[str] = ("query_to_doc",),
    joint: bool = True,
    hardness: float = 0.0,
    hardness_on: str = "in_batch",
) -> Total:
    """Cross-entropy of finding the own positive among all texts of the batch.

    InfoNCE (van den Oord et al., 2018, equation 4) on cosines.

    Args:
      groups: queries, positives and any number of hard negatives; C is 2 or more.
      scale: the cosines' factor, one over the temperature.
      cosine: False compares by inner products, as sparse vectors are.
      directions: names in `DIRECTIONS`; "query_to_doc" must be one of them.
      joint: True for one softmax over all directions (GTE, Li et al., 2023, equation
        2, has all four), False for the mean of one softmax each.
      hardness: gain of a negative's logit for each unit of its cosine, without gradient
        (Lan et al., 2025, equation 5: 9; EmbeddingGemma, 2025: 5, on "hard").
      hardness_on: "in_batch" for texts of other rows, "hard" for the row's own
        negatives, "all" for both.

    Returns:
      (sum, count) over rows that have a query and a positive.

    Raises:
      ValueError: for rows of one text, for an unknown option, without "query_to_doc",
        or where a softmax would have no positive.

    >>> vectors = jnp.array([[[3.0, 0.0], [1.0, 0.0]], [[0.0, 2.0], [0.0, 1.0]]])
    >>> groups = VectorGroups(vectors, jnp.ones((2, 2), bool))
    >>> total, count = multiple_negatives(groups, scale=1.0)  # 2 log(1 + 1 / e)
    >>> round(float(total), 4), int(count)
    (0.6265, 2)
    """
    _check_directions(directions, joint)
    _check_option("hardness_on", hardness_on, HARDNESS)
    x = _existing(groups)
    x = _unit(x) if cosine else x
    _check_columns(x, 2)
    logits = {direction: scale * _between(x, direction) for direction in directions}
    if hardness:
        forward = logits["query_to_doc"]
        own, positive = _own(len(x)), _own_positive(forward)
        harder = {"in_batch": ~own, "hard": own & ~positive, "all": ~positive}
        more = hardness / scale * jax.lax.stop_gradient(forward)
        logits["query_to_doc"] += jnp.where(harder[hardness_on], more, 0)
    return _choice(groups, logits, joint)


def gist(
    groups: VectorGroups,
    *,
    scale: float = 100.0,
    directions: Sequence[str] = ("query_to_doc", "query_to_query", "doc_to_doc"),
    joint: bool = True,
    margin: float = 0.0,
    relative_margin: bool = False,
) -> Total:
    """`multiple_negatives` without those that a guide takes for positives.

    Candidates count unless their cosine, by the guide's vectors, is higher than that of
    the query and its positive minus the margin (GISTEmbed, Solatorio, 2024, section 3).

    Args:
      groups: as in `multiple_negatives`, with `guide`.
      scale, directions, joint: see there.
      margin: a cosine.
      relative_margin: True makes it a share of the cosine of query and positive.

    Raises:
      ValueError: as there, and without a guide.

    >>> vectors = jnp.array([[[3.0, 0.0], [1.0, 0.0]], [[0.0, 2.0], [0.0, 1.0]]])
    >>> groups = VectorGroups(vectors, jnp.ones((2, 2), bool), guide=vectors)
    >>> one = ("query_to_doc",)
    >>> total, _ = gist(groups, scale=1.0, directions=one)
    >>> round(float(total), 4)  # 2 log(1 + 1 / e)
    0.6265
    >>> total, _ = gist(groups, scale=1.0, directions=one, margin=1.1)  # all removed
    >>> float(total)
    0.0
    """
    _check_directions(directions, joint)
    if groups.guide is None:
        raise ValueError("gist needs the vectors of a guide, and the rows have none")
    x = _unit(_existing(groups))
    _check_columns(x, 2)
    guide = _unit(jax.lax.stop_gradient(_only(groups.exists, groups.guide)))
    closest = jnp.sum(guide[:, 0] * guide[:, 1], -1)
    limit = closest - margin * (jnp.abs(closest) if relative_margin else 1)
    logits = {}
    for direction in directions:
        counts = _between(guide, direction) <= limit[:, None, None]
        if direction not in SAME_SIDE:
            counts |= _own_positive(counts)
        cosines = _between(x, direction)
        logits[direction] = jnp.where(counts, scale * cosines, VERY_LOW)
    return _choice(groups, logits, joint)


def cosent(groups: VectorGroups, *, scale: float = 20.0) -> Total:
    """Loss of pairs whose cosines are in another order than their labels.

    log(1 + sum of exp(scale (cosine of i - cosine of j))) over all pairs of texts i, j
    of the batch with label i < label j (CoSENT, Su, 2022). The loss is one of the whole
    batch, and counts as often as there are pairs.

    Args:
      groups: with scores as labels; only their order matters.
      scale: the cosines' factor.

    Raises:
      ValueError: without one score for each pair.

    >>> vectors = jnp.array([[[1.0, 0.0], [2.0, 0.0]], [[0.0, 1.0], [1.0, 0.0]]])
    >>> exists = jnp.ones((2, 2), bool)
    >>> right = cosent(VectorGroups(vectors, exists, jnp.array([5.0, 0.0])))
    >>> wrong = cosent(VectorGroups(vectors, exists, jnp.array([0.0, 5.0])))
    >>> [round(float(total / count), 4) for total, count in (right, wrong)]
    [0.0, 20.0]
    """
    return _order(groups, _with_first(_unit(_existing(groups))), scale)


def angle(groups: VectorGroups, *, scale: float = 20.0) -> Total:
    """`cosent` with angles between complex numbers in place of cosines.

    Numbers k and k + D / 2 of a vector are one complex number (AnglE, Li and Li, 2023,
    section 3.4). An odd D gains a zero.

    Raises:
      ValueError: without one score for each pair.

    >>> vectors = jnp.array([[[1.0, 0.0], [1.0, 0.0]], [[1.0, 0.0], [1.0, 1.0]]])
    >>> groups = VectorGroups(vectors, jnp.ones((2, 2), bool), jnp.array([1.0, 0.0]))
    >>> total, count = angle(groups, scale=1.0)  # cosine plus sine: 1 and 0
    >>> round(float(total / count), 4)  # log(1 + 1 / e)
    0.3133
    """
    x = _unit(_existing(groups))
    x = jnp.pad(x, ((0, 0), (0, 0), (0, x.shape[-1] % 2)))
    real, imaginary = jnp.split(x, 2, -1)
    turned = jnp.concatenate([real + imaginary, imaginary - real], -1)
    closeness = jnp.einsum("BD,BCD->BC", turned[:, 0], x[:, 1:], precision="highest")
    return _order(groups, jnp.abs(closeness), scale)


def cosine_mse(groups: VectorGroups) -> Total:
    """Squared difference of cosines and scores, over pairs.

    Reimers and Gurevych, 2019, section 3.

    Args:
      groups: with scores from -1 to 1 as labels.

    Raises:
      ValueError: without one score for each pair.

    >>> x = jnp.array([[[1.0, 0.0], [0.0, 2.0]]])
    >>> groups = VectorGroups(x, jnp.ones((1, 2), bool), labels=jnp.array([0.5]))
    >>> [float(x) for x in cosine_mse(groups)]
    [0.25, 1.0]
    """
    cosines = _with_first(_unit(_existing(groups)))
    return _total(jnp.square(cosines - _scores(groups)), _pairs(groups))


def triplet(
    groups: VectorGroups, *, margin: float = 5.0, distance: str = "euclidean"
) -> Total:
    """max(0, distance to the positive - distance to a negative + margin).

    Over all negatives of all rows (Schroff et al., 2015; Reimers and Gurevych, 2019).

    Args:
      groups: queries, positives and negatives; C is 3 or more.
      margin: in units of the distance. Two vectors of length 1 are 2 apart at most:
        where the model scales its vectors, a margin of 5 is never reached.
      distance: "euclidean", or "cosine" for 1 - cosine.

    Raises:
      ValueError: for rows of fewer than three texts, or an unknown distance.

    >>> vectors = jnp.array([[[0.0, 0.0], [3.0, 4.0], [0.0, 1.0], [0.0, 99.0]]])
    >>> total, count = triplet(VectorGroups(vectors, jnp.ones((1, 4), bool)))
    >>> float(total), int(count)
    (9.0, 2)
    """
    _check_option("distance", distance, ("euclidean", "cosine"))
    x = _existing(groups)
    _check_columns(x, 3)
    if distance == "cosine":
        apart = 1 - _with_first(_unit(x))
    else:
        squares = jnp.sum(jnp.square(x[:, :1] - x[:, 1:]), -1)
        apart = jnp.sqrt(jnp.maximum(squares, 1e-24))
    return _total(jax.nn.relu(apart[:, :1] - apart[:, 1:] + margin), _negatives(groups))


def supervised_contrastive(groups: VectorGroups, *, scale: float = 10.0) -> Total:
    """Cross-entropy of finding texts of the same class among all other texts.

    Khosla et al., 2020, equation 2 ("out"), over all texts that have a partner.

    Args:
      groups: with classes as labels, one for all texts of a row; C can be 1.
      scale: the cosines' factor, one over the temperature.

    Raises:
      ValueError: without one class for each row.

    >>> vectors = jnp.array([[[1.0, 0.0]], [[2.0, 0.0]], [[0.0, 1.0]]])
    >>> groups = VectorGroups(vectors, jnp.ones((3, 1), bool), jnp.array([4, 4, 7]))
    >>> total, count = supervised_contrastive(groups, scale=1.0)
    >>> round(float(total), 4), int(count)  # 2 log(1 + 1 / e): the third is alone
    (0.6265, 2)
    """
    B, C = groups.exists.shape
    x = _unit(_existing(groups)).reshape(B * C, -1)
    if (labels := _labels(groups)).shape != (B,):
        raise ValueError(
            f"labels have the shape {labels.shape}; this loss needs one class for each "
            f"of {B} rows"
        )
    classes = jnp.repeat(labels, C)
    exists = groups.exists.reshape(-1)
    others = exists[None] & ~jnp.eye(B * C, dtype=bool)
    partners = others & (classes[:, None] == classes[None])
    logits = scale * jnp.einsum("ND,MD->NM", x, x, precision="highest")
    partition = jax.nn.logsumexp(jnp.where(others, logits, VERY_LOW), 1)
    count = partners.sum(1)
    mean = jnp.where(partners, logits, 0).sum(1) / jnp.maximum(count, 1)
    return _total(partition - mean, exists & (count > 0))


def margin_mse(groups: VectorGroups, *, scale: float = 1.0) -> Total:
    """Squared difference of a student's and a teacher's margins, over negatives.

    A margin is the score of the positive minus that of a negative; the student's scores
    are inner products (Hofstätter et al., 2020, section 3).

    Args:
      groups: C is 3 or more; labels are the teacher's scores `[B, C - 1]`, or margins
        `[B, C - 2]`.
      scale: factor of the student's scores.

    Raises:
      ValueError: for rows of fewer than three texts, or labels of another shape.

    >>> vectors = jnp.array([[[2.0, 0.0], [1.0, 0.0], [0.0, 1.0]]])
    >>> labels = jnp.array([[8.0, 7.5]])
    >>> total, _ = margin_mse(VectorGroups(vectors, jnp.ones((1, 3), bool), labels))
    >>> float(total)  # the margins are 2 and 0.5
    2.25
    """
    x = _existing(groups)
    _check_columns(x, 3)
    scores, margins = scale * _with_first(x), _labels(groups).reshape(len(x), -1)
    if margins.shape == scores.shape:
        margins = margins[:, :1] - margins[:, 1:]
    if margins.shape != scores[:, 1:].shape:
        raise ValueError(
            f"labels have the shape {margins.shape}; this loss needs {scores.shape} "
            f"scores or {scores[:, 1:].shape} margins"
        )
    negatives = _negatives(groups)
    # Labels of missing texts can be NaN, which gradients must not meet.
    margins = jnp.where(negatives, margins, 0)
    return _total(jnp.square(scores[:, :1] - scores[:, 1:] - margins), negatives)


def kl(groups: VectorGroups, *, temperature: float = 1.0, scale: float = 1.0) -> Total:
    """Divergence of a student's from a teacher's choice among the texts of a row.

    Kullback-Leibler, at a temperature T and times T squared; the student's scores are
    inner products.

    Args:
      groups: C is 3 or more; labels are the teacher's scores `[B, C - 1]`.
      temperature: of both.
      scale: factor of the student's scores.

    Raises:
      ValueError: for rows of fewer than three texts, or labels of another shape.

    >>> vectors = jnp.array([[[1.0, 0.0], [0.0, 1.0], [0.0, 2.0]]])  # scores 0 and 0
    >>> labels = jnp.log(jnp.array([[0.9, 0.1]]))
    >>> total, _ = kl(VectorGroups(vectors, jnp.ones((1, 3), bool), labels))
    >>> round(float(total), 4)  # 0.9 log 1.8 + 0.1 log 0.2
    0.3681
    """
    x, pairs = _existing(groups), _pairs(groups)
    _check_columns(x, 3)
    ours, theirs = (
        jax.nn.log_softmax(jnp.where(pairs, y / temperature, VERY_LOW))
        for y in (scale * _with_first(x), _scores(groups))
    )
    divergence = jnp.sum(jnp.exp(theirs) * (theirs - ours), -1) * temperature**2
    return _total(divergence, pairs[:, 0])


def embedding_mse(groups: VectorGroups) -> Total:
    """Mean squared difference from the numbers of a teacher's vectors, over texts.

    Reimers and Gurevych, 2020, section 2; the teacher's vectors have D numbers too.

    Raises:
      ValueError: for a teacher of another width.

    >>> exists = jnp.array([[True, False]])  # the second text is missing
    >>> groups = VectorGroups(jnp.ones((1, 2, 4)), exists, teacher=jnp.zeros((1, 2, 4)))
    >>> [float(x) for x in embedding_mse(groups)]
    [1.0, 1.0]
    """
    x, teacher = _existing(groups), groups.teacher
    if teacher is None or teacher.shape != x.shape:
        shape = None if teacher is None else teacher.shape
        raise ValueError(
            f"the teacher's vectors have the shape {shape}, the model's {x.shape}; "
            "choose a teacher of the same width"
        )
    teacher = _only(groups.exists, teacher)
    return _total(jnp.square(x - teacher).mean(-1), groups.exists)


def matryoshka(
    loss: Callable[..., Total], dims: Sequence[int], weights: Sequence[float] = ()
) -> Callable[..., Total]:
    """A loss summed over the first numbers of vectors, scaled to length 1 again.

    Kusupati et al., 2022, section 3. A teacher's vectors are cut, too; a guide's are
    not.

    Args:
      loss: one of `LOSSES`.
      dims: how many numbers; include D, or whole vectors are not trained.
      weights: one for each of `dims`; all 1 by default.

    Returns:
      A loss with the same arguments.

    Raises:
      ValueError: by the loss, for vectors of fewer numbers than one of `dims`.

    >>> x = jnp.array([[[0.6, 0.8], [0.6, -0.8]]])
    >>> groups = VectorGroups(x, jnp.ones((1, 2), bool), labels=jnp.array([1.0]))
    >>> total, _ = matryoshka(cosine_mse, (2, 1), (0.5, 1.0))(groups)
    >>> round(float(total), 4) == round(0.5 * (0.36 - 0.64 - 1) ** 2, 4)
    True
    """
    weights = tuple(weights) or (1.0,) * len(dims)

    def summed(groups: VectorGroups, **settings: Any) -> Total:
        D = groups.vectors.shape[-1]
        for dim in dims:
            if not 0 < dim <= D:
                raise ValueError(
                    f"dims={tuple(dims)} has {dim}; vectors have {D} numbers"
                )
        parts = [loss(_truncated(groups, dim), **settings) for dim in dims]
        total = sum(w * part for w, (part, _) in zip(weights, parts, strict=True))
        return jnp.asarray(total), parts[0][1]

    return summed


class Loss(NamedTuple):
    """One loss, and the data that it learns from.

    Attributes:
      function: of `VectorGroups` and the settings.
      data: "pairs" for rows of a query, a positive and perhaps negatives, "scored" for
        rows with a score for each text after the first, "labelled" for texts with a
        class, "texts" for texts alone.
      columns: the fewest texts in a row; a loss of "texts" reads each text so often.
      in_batch: other rows are negatives, so that no text should be in two rows.
      beside: the field of `VectorGroups` that another model fills: "teacher", "guide".
      settings: names and defaults.
      source: of the formula.

    >>> LOSSES["triplet"].data, LOSSES["triplet"].settings
    ('pairs', {'margin': 5.0, 'distance': 'euclidean'})
    """

    function: Callable[..., Total]
    data: str
    columns: int
    in_batch: bool
    beside: str | None
    settings: Mapping[str, Any]
    source: str


def _loss(
    function: Callable[..., Total],
    data: str,
    columns: int,
    source: str,
    *,
    in_batch: bool = False,
    beside: str | None = None,
) -> Loss:
    parameters = list(inspect.signature(function).parameters.values())[1:]
    settings = {x.name: x.default for x in parameters}
    return Loss(function, data, columns, in_batch, beside, settings, source)


LOSSES = {
    "multiple_negatives": _loss(
        multiple_negatives, "pairs", 2, "van den Oord et al., 2018", in_batch=True
    ),
    "gist": _loss(gist, "pairs", 2, "Solatorio, 2024", in_batch=True, beside="guide"),
    "simcse": _loss(multiple_negatives, "texts", 2, "Gao et al., 2021", in_batch=True),
    "cosent": _loss(cosent, "scored", 2, "Su, 2022"),
    "angle": _loss(angle, "scored", 2, "Li and Li, 2023"),
    "cosine_mse": _loss(cosine_mse, "scored", 2, "Reimers and Gurevych, 2019"),
    "triplet": _loss(triplet, "pairs", 3, "Reimers and Gurevych, 2019"),
    "supervised_contrastive": _loss(
        supervised_contrastive, "labelled", 1, "Khosla et al., 2020"
    ),
    "margin_mse": _loss(margin_mse, "scored", 3, "Hofstätter et al., 2020"),
    "kl": _loss(kl, "scored", 3, "Hinton et al., 2015"),
    "embedding_mse": _loss(
        embedding_mse, "texts", 1, "Reimers and Gurevych, 2020", beside="teacher"
    ),
}


def _unit(x: jax.Array) -> jax.Array:
    """Vectors `[..., D]` scaled to length 1; zeros stay zeros, and have a gradient."""
    squares = jnp.sum(x * x, -1, keepdims=True)
    return x * jax.lax.rsqrt(jnp.maximum(squares, 1e-24))


def _check_option(name: str, value: str, options: Sequence[str]) -> None:
    """Raises ValueError unless a setting is one of its options."""
    if value not in options:
        raise ValueError(
            f"{name}={value!r} is unknown; choose one of {', '.join(options)}"
        )


def _check_directions(directions, joint):
    for direction in directions:
        _check_option("directions", direction, tuple(DIRECTIONS))
    if "query_to_doc" not in directions:
        raise ValueError(
            f"directions={tuple(directions)} lacks 'query_to_doc', which has the "
            "positive; add it"
        )
    if not joint and set(SAME_SIDE) & set(directions):
        raise ValueError(
            f"joint=False needs a positive in every direction of {tuple(directions)}; "
            f"leave out {' and '.join(SAME_SIDE)}, or set joint=True"
        )


def _check_columns(x, columns):
    if x.shape[1] < columns:
        raise ValueError(
            f"rows have {x.shape[1]} texts; this loss needs {columns} or more"
        )


def _only(exists, x):
    """float32 vectors, 0 where there is no text."""
    return jnp.where(exists[..., None], x.astype(jnp.float32), 0)


def _existing(groups):
    return _only(groups.exists, groups.vectors)


def _pairs(groups):
    """`[B, C - 1]`: the first text and this other one exist."""
    return groups.exists[:, :1] & groups.exists[:, 1:]


def _negatives(groups):
    """`[B, C - 2]`: the first two texts and this negative exist."""
    return _pairs(groups)[:, :1] & groups.exists[:, 2:]


def _labels(groups):
    if groups.labels is None:
        raise ValueError("this loss needs labels, and the rows have none")
    return groups.labels


def _scores(groups):
    """Labels as scores `[B, C - 1]`, 0 where there is no pair."""
    pairs = _pairs(groups)
    labels = _labels(groups)
    if labels.size != pairs.size:
        raise ValueError(
            f"labels have the shape {labels.shape}; this loss needs one for each of "
            f"{pairs.shape} pairs"
        )
    return jnp.where(pairs, labels.reshape(pairs.shape).astype(jnp.float32), 0)


def _between(x, direction):
    """Inner products `[B, N, C]` of vectors `[B, C, D]` in one of `DIRECTIONS`."""
    column, columns = DIRECTIONS[direction]
    # Where a TPU would round to bfloat16, cosines are off by some thousandths.
    return jnp.einsum("BD,NCD->BNC", x[:, column], x[:, columns], precision="highest")


def _own(count):
    """`[B, N, 1]`: the candidates of a row that are its own."""
    return jnp.eye(count, dtype=bool)[..., None]


def _own_positive(scores):
    """`[B, N, C]`: the first of the candidates of a row that are its own."""
    return _own(len(scores)) & (jnp.arange(scores.shape[-1]) == 0)[None, None]


def _choice(groups, logits, joint):
    """Cross-entropy of the positives among the candidates of all directions."""
    partitions = []
    for direction, x in logits.items():
        counts = groups.exists[None, :, DIRECTIONS[direction][1]]
        if direction in SAME_SIDE:
            counts = counts & ~_own(len(x))
        x = jnp.where(counts, x, VERY_LOW)
        partitions.append(jax.nn.logsumexp(x, (1, 2)))
    forward = logits["query_to_doc"]
    positives = jnp.where(_own_positive(forward), forward, 0).sum((1, 2))
    join = jax.nn.logsumexp if joint else jnp.mean
    return _total(join(jnp.stack(partitions), 0) - positives, _pairs(groups)[:, 0])


def _with_first(x):
    """Inner products `[B, C - 1]` of the first of C vectors with the others."""
    return jnp.sum(x[:, :1] * x[:, 1:], -1)


def _order(groups, closeness, scale):
    """The loss of pairs `[B, C - 1]` whose closeness is in the wrong order."""
    pairs = _pairs(groups).reshape(-1)
    labels = _scores(groups).reshape(-1)
    logits = scale * closeness.reshape(-1)
    wrong = pairs[:, None] & pairs[None] & (labels[:, None] < labels[None])
    differences = jnp.where(wrong, logits[:, None] - logits[None], VERY_LOW)
    loss = jnp.logaddexp(0, jax.nn.logsumexp(jax.nn.logsumexp(differences, 1)))
    count = pairs.sum().astype(jnp.float32)
    return loss * count, count


def _truncated(groups, dim):
    def cut(x):
        return None if x is None else _unit(x[..., :dim])

    vectors = _unit(_existing(groups)[..., :dim])
    return groups._replace(vectors=vectors, teacher=cut(groups.teacher))


def _total(losses, counts):
    """(sum, count) of losses where they count; both have the same shape."""
    return jnp.where(counts, losses, 0).sum(), counts.sum().astype(jnp.float32)
