"""Losses of rerankers, which score the documents of a query.

All are functions of `scores` `[B, C]`, the logits of the C documents of B queries, of
`labels` `[B, C]`, and of `exists` `[B, C]`, which is False where a query has fewer
documents and in rows that only fill the batch. Pairs with one score each have C = 1.
Each returns (sum, count), like all objectives.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

Total = tuple[jax.Array, jax.Array]

# The logit of a document that a query does not have.
VERY_LOW = -1e9


def binary_cross_entropy(
    scores: jax.Array, labels: jax.Array, exists: jax.Array
) -> Total:
    """Cross-entropy of each document alone; labels are from 0 to 1.

    Nogueira and Cho, 2019, section 3.

    >>> scores, exists = jnp.zeros((2, 1)), jnp.ones((2, 1), bool)
    >>> total, count = binary_cross_entropy(scores, jnp.array([[1.0], [0.5]]), exists)
    >>> round(float(total / count), 4), float(count)
    (0.6931, 2.0)
    """
    losses = optax.sigmoid_binary_cross_entropy(scores, labels)
    return _sum_over(losses, exists)


def squared_error(scores: jax.Array, labels: jax.Array, exists: jax.Array) -> Total:
    """Squared difference of each score from its label.

    >>> squared_error(jnp.ones((1, 2)), jnp.zeros((1, 2)), jnp.array([[True, False]]))
    (Array(1., dtype=float32), Array(1., dtype=float32))
    """
    return _sum_over(jnp.square(scores - labels), exists)


def margin_mse(scores: jax.Array, labels: jax.Array, exists: jax.Array) -> Total:
    """Squared difference of margins: of the first document above each other one.

    Labels are the scores of a teacher (Hofstätter et al., 2020, section 3.2).

    >>> labels = jnp.array([[7.0, 5.0]])
    >>> margin_mse(jnp.zeros((1, 2)), labels, jnp.ones((1, 2), bool))
    (Array(4., dtype=float32), Array(1., dtype=float32))
    """
    errors = scores - labels
    differences = errors[:, :1] - errors[:, 1:]
    return _sum_over(jnp.square(differences), exists[:, :1] & exists[:, 1:])


def cross_entropy(scores: jax.Array, labels: jax.Array, exists: jax.Array) -> Total:
    """Cross-entropy over the documents of a query: the best label is the right class.

    The first one counts where several are best (Gao et al., 2021, section 3.2).

    >>> labels = jnp.array([[0.0, 1.0]])
    >>> total, _ = cross_entropy(jnp.zeros((1, 2)), labels, jnp.ones((1, 2), bool))
    >>> round(float(total), 4)
    0.6931
    """
    right = jnp.where(exists, labels, -jnp.inf).argmax(-1)
    losses = optax.softmax_cross_entropy_with_integer_labels(
        jnp.where(exists, scores, VERY_LOW), right
    )
    return _sum_over(losses, exists.any(-1))


def list_net(scores: jax.Array, labels: jax.Array, exists: jax.Array) -> Total:
    """Cross-entropy from the softmax of the labels to that of the scores.

    Cao et al., 2007, section 4.

    >>> labels = jnp.array([[2.0, 2.0]])
    >>> total, _ = list_net(jnp.zeros((1, 2)), labels, jnp.ones((1, 2), bool))
    >>> round(float(total), 4)
    0.6931
    """
    shares = jax.nn.softmax(jnp.where(exists, labels, VERY_LOW))
    logs = jax.nn.log_softmax(jnp.where(exists, scores, VERY_LOW))
    return _sum_over(-(shares * logs).sum(-1), exists.any(-1))


def rank_net(scores: jax.Array, labels: jax.Array, exists: jax.Array) -> Total:
    """Logistic loss, in bits, of each two documents that labels put in an order.

    Burges et al., 2005, section 3.

    >>> labels = jnp.array([[1.0, 0.0]])
    >>> rank_net(jnp.zeros((1, 2)), labels, jnp.ones((1, 2), bool))
    (Array(1., dtype=float32), Array(1., dtype=float32))
    """
    weights = jnp.ones((*scores.shape, scores.shape[1]))
    return _sum_over(weights * _pair_losses(scores), _in_order(labels, exists))


def lambda_loss(
    scores: jax.Array,
    labels: jax.Array,
    exists: jax.Array,
    *,
    mu: float = 10.0,
    k: int | None = None,
) -> Total:
    """NDCG-Loss2++: the loss of `rank_net`, weighted by what an exchange does to nDCG.

    Wang et al., 2018, section 4.3.

    Args:
      scores, labels, exists: see the module; labels count as relevance, negative ones
        as 0.
      mu: the weight of NDCG-Loss2; 0 leaves LambdaRank.
      k: only pairs count of which one is among the `k` highest scores; None for all.

    >>> labels, exists = jnp.array([[0.0, 3.0]]), jnp.ones((1, 2), bool)
    >>> good, _ = lambda_loss(jnp.array([[0.0, 5.0]]), labels, exists)
    >>> bad, _ = lambda_loss(jnp.array([[5.0, 0.0]]), labels, exists)
    >>> bool(good < bad)
    True
    """
    C = scores.shape[1]
    k = k or C
    order = jnp.argsort(-jnp.where(exists, scores, -jnp.inf))
    scores, labels, exists = (
        jnp.take_along_axis(x, order, axis=1) for x in (scores, labels, exists)
    )
    relevance = jnp.where(exists, jnp.maximum(labels, 0.0), 0.0)
    powers = jnp.exp2(relevance) - 1
    discounts = jnp.log2(jnp.arange(C) + 2.0)
    ideal = (-jnp.sort(-powers) / discounts[None])[:, :k].sum(-1, keepdims=True)
    gains = powers / jnp.maximum(ideal, 1e-10)
    changes = mu * _by_distance(discounts) + _by_rank(discounts)
    weights = changes[None] * jnp.abs(gains[:, :, None] - gains[:, None])
    top = jnp.arange(C) < k
    counted = _in_order(labels, exists) & (top[:, None] | top[None])[None]
    return _sum_over(jax.lax.stop_gradient(weights) * _pair_losses(scores), counted)


def _by_rank(discounts: jax.Array) -> jax.Array:
    """`[C, C]`: the change of the discount when two ranks are exchanged."""
    return jnp.abs(1 / discounts[:, None] - 1 / discounts[None])


def _by_distance(discounts: jax.Array) -> jax.Array:
    """`[C, C]`: the discount between ranks 1, 2, … apart; 0 on the diagonal."""
    C = len(discounts)
    steps = jnp.abs(jnp.diff(1 / discounts, append=1 / jnp.log2(C + 2.0)))
    distance = jnp.abs(jnp.arange(C)[:, None] - jnp.arange(C)[None])
    return jnp.where(distance > 0, steps[distance - 1], 0.0)


def _pair_losses(scores: jax.Array) -> jax.Array:
    """`[B, C, C]`: the logistic loss, in bits, of "the first is above the second"."""
    differences = scores[:, :, None] - scores[:, None]
    return jax.nn.softplus(-differences) / math.log(2)


def _in_order(labels: jax.Array, exists: jax.Array) -> jax.Array:
    """bool `[B, C, C]`: both documents exist, and the first has the higher label."""
    both = exists[:, :, None] & exists[:, None]
    return both & (labels[:, :, None] > labels[:, None])


def _sum_over(losses: jax.Array, counted: jax.Array) -> Total:
    """The sum of the losses that count, and their number."""
    return jnp.where(counted, losses, 0.0).sum(), counted.sum().astype(jnp.float32)


class Loss(NamedTuple):
    """A loss, and what a model that is trained with it needs.

    Attributes:
      function: scores, labels and `exists` `[B, C]` -> (sum, count).
      per_query: True where the documents of a query are compared with each other.
      activation: the activation of `torch.nn` that makes a score of a logit.
    """

    function: Callable[[jax.Array, jax.Array, jax.Array], Total]
    per_query: bool
    activation: str


# By their names in the settings of a task.
LOSSES = {
    "binary_cross_entropy": Loss(binary_cross_entropy, False, "Sigmoid"),
    "squared_error": Loss(squared_error, False, "Identity"),
    "margin_mse": Loss(margin_mse, True, "Identity"),
    "cross_entropy": Loss(cross_entropy, True, "Identity"),
    "list_net": Loss(list_net, True, "Identity"),
    "rank_net": Loss(rank_net, True, "Identity"),
    "lambda": Loss(lambda_loss, True, "Identity"),
}
