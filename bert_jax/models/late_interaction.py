"""Late interaction: a vector for each token, and a score of two texts from them.

Khattab and Zaharia, 2020 (ColBERT), section 3.
"""

import jax
import jax.numpy as jnp
from flax import linen as nn

from bert_jax.models.pooling import normalized

# The score of a document without tokens, which is below that of any other.
NO_TOKENS = -1e9


class TokenVectors(nn.Module):
    """A vector of length 1 for each token, for training: `[B, L] -> float32 [B, L, E]`.

    A trained one is used as `Features` with a `pretrained.LateInteraction`.

    >>> head = TokenVectors(encoder, width=8)
    >>> x, tree = jax.eval_shape(head.init_with_output, key, ids)
    >>> x.shape, sorted(tree["params"])
    ((2, 7, 8), ['encoder', 'projection'])
    """

    encoder: nn.Module
    width: int = 128
    normalize: bool = True

    @nn.compact
    def __call__(
        self,
        input_ids: jax.Array,
        attention_mask: jax.Array | None = None,
        token_type_ids: jax.Array | None = None,
        position_ids: jax.Array | None = None,
        *,
        deterministic: bool = True,
    ) -> jax.Array:
        """Vectors; tokens that are 0 in `attention_mask` have one, too."""
        inputs = (input_ids, attention_mask, token_type_ids, position_ids)
        x = self.encoder(*inputs, deterministic=deterministic).astype(jnp.float32)
        dense = nn.Dense(
            self.width,
            use_bias=False,
            kernel_init=nn.initializers.normal(self.width**-0.5),
            precision=jax.lax.Precision.HIGHEST,
            name="projection",
        )
        return normalized(dense(x)) if self.normalize else dense(x)


def maxsim(
    queries: jax.Array,
    query_mask: jax.Array,
    documents: jax.Array,
    document_mask: jax.Array,
) -> jax.Array:
    """The scores of all pairs of a query and a document, float32 `[B, N]`.

    Each token of the query takes its best product with a token of the document, and
    these are summed: Σ_i max_j q_i · d_j.

    Args:
      queries: `[B, L, E]`.
      query_mask: `[B, L]`, 0 for tokens that do not count.
      documents: `[N, M, E]`.
      document_mask: `[N, M]`, 0 for tokens that do not count.

    >>> q, d = jnp.eye(2)[None], jnp.array([[[0.5, 0.0], [0.0, 2.0]]])
    >>> maxsim(q, jnp.ones((1, 2)), d, jnp.ones((1, 2)))
    Array([[2.5]], dtype=float32)
    """
    products = jnp.einsum(
        "BLE,NME->BNLM", queries, documents, precision=jax.lax.Precision.HIGHEST
    )
    low = jnp.finfo(products.dtype).min
    best = jnp.where(document_mask[None, :, None] > 0, products, low).max(-1)
    scores = jnp.where(query_mask[:, None] > 0, best, 0).sum(-1)
    empty = ~(document_mask > 0).any(-1)
    return jnp.where(empty[None], NO_TOKENS, scores)
