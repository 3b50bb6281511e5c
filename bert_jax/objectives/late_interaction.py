"""Losses of late interaction: functions of scores between queries and documents."""

import jax
import jax.numpy as jnp

from bert_jax.models.late_interaction import NO_TOKENS, maxsim
from bert_jax.objectives.distillation import Total


def all_scores(
    queries: jax.Array,
    query_mask: jax.Array,
    documents: jax.Array,
    document_mask: jax.Array,
) -> jax.Array:
    """The scores `[B, B, C - 1]` of each row's query with all documents of a batch.

    Args:
      queries: `[B, L, E]`, the vectors of tokens.
      query_mask: `[B, L]`, 0 for tokens that do not count.
      documents: `[B, C - 1, M, E]`.
      document_mask: `[B, C - 1, M]`.
    """

    # One column after the other: only `[B, B, L, M]` products are in memory at once.
    def column(pair):
        return maxsim(queries, query_mask, *pair)

    columns = (documents.swapaxes(0, 1), document_mask.swapaxes(0, 1))
    return jnp.moveaxis(jax.lax.map(jax.checkpoint(column), columns), 0, -1)


def in_batch(scores: jax.Array, exists: jax.Array, *, scale: float = 1.0) -> Total:
    """Cross-entropy of finding the own positive among all documents of the batch.

    Args:
      scores: `[B, B, C - 1]`, see `all_scores`.
      exists: bool `[B, C]`, False for missing texts.
      scale: factor of the scores.

    Returns:
      (sum, count) over rows that have a query and a positive.
    """
    logits = jnp.where(exists[None, :, 1:], scale * scores, NO_TOKENS)
    positives = jnp.einsum("BBC->BC", logits)[:, 0]
    losses = jax.nn.logsumexp(logits, (1, 2)) - positives
    rows = exists[:, 0] & exists[:, 1]
    return jnp.where(rows, losses, 0).sum(), rows.sum().astype(jnp.float32)


def as_vectors(scores: jax.Array) -> jax.Array:
    """Vectors `[B, C, 1]` whose inner products are the scores `[B, C - 1]` of rows.

    The losses of `objectives.contrastive` on inner products take them.
    """
    return jnp.concatenate([jnp.ones_like(scores[:, :1]), scores], 1)[..., None]
