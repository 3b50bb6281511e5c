"""Regularisers of sparse vectors: the fewer weights there are, the faster the search.

The vectors are those of `models.sparse.word_weights`; the loss on their dot products is
one of `objectives.contrastive`.
"""

import jax
import jax.numpy as jnp

Total = tuple[jax.Array, jax.Array]

SCHEDULES = ("quadratic", "linear", "constant")


def flops(vectors: jax.Array, exists: jax.Array, threshold: int | None = None) -> Total:
    """The products that a search computes for a pair of texts, as (sum, count).

    The sum over words of the squared mean weight (Paria et al., 2020, section 4): its
    gradient falls most on words that many texts have.

    Args:
      vectors: `[..., V]`, 0 or above.
      exists: `[...]`, False for texts that only fill the batch.
      threshold: texts with no more weights than this count as zeros (arXiv 2504.14839);
        None counts all.

    >>> vectors = jnp.array([[1.0, 0.0, 2.0], [3.0, 0.0, 0.0]])
    >>> value, count = flops(vectors, jnp.array([True, True]))
    >>> float(value / count)  # (4 / 2)² + (2 / 2)²
    5.0
    """
    exists = exists.astype(jnp.float32)
    count = exists.sum()
    regular = exists
    if threshold is not None:
        regular = exists * ((vectors != 0).sum(-1) > threshold)
    means = jnp.einsum("...V,...->V", vectors, regular) / jnp.maximum(count, 1)
    return (means**2).sum() * count, count


def rising(seen: jax.Array, until: float, schedule: str = "quadratic") -> jax.Array:
    """The factor of the regularisers, which rises from 0 to 1.

    From the start at full weight, all weights of a model can become 0, and then no
    gradient brings them back (Formal et al., 2021, section 4).

    Args:
      seen: the number of examples, or of steps, so far.
      until: the number at which the factor becomes 1.
      schedule: "quadratic", "linear" or "constant", which is 1 from the start.

    >>> float(rising(jnp.array(50.0), 100)), float(rising(jnp.array(150.0), 100))
    (0.25, 1.0)
    """
    if schedule == "constant" or until <= 0:
        return jnp.ones(())
    share = jnp.minimum(seen / until, 1.0)
    return share**2 if schedule == "quadratic" else share
