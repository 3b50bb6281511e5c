"""Sparse vectors: a weight for each word of the vocabulary, from a masked LM head.

A text gets the weights of its own words and of words that fit it (SPLADE, Formal et
al., 2021, section 3.1, and the maximum over tokens of its second version). The matrix
of logits `[B, L, V]` is never whole in memory.
"""

import jax
import jax.numpy as jnp
from flax import linen as nn

POOLINGS = ("max", "sum")
ACTIVATIONS = ("relu", "log1p_relu")

# Logits that are computed together: 256 MB of them.
MOST_LOGITS = 2**26
FEWEST_POSITIONS = 8


def word_weights(
    head: nn.Module,
    input_ids: jax.Array,
    attention_mask: jax.Array,
    token_type_ids: jax.Array | None = None,
    *,
    pooling: str = "max",
    activation: str = "relu",
    deterministic: bool = True,
) -> jax.Array:
    """The sparse vectors of rows, float32 `[B, V]`, 0 or above.

    Called by `head.apply(..., method=word_weights)`.

    Args:
      head: a head that scores words: it has an `encoder` and a masked LM head `mlm`.
      input_ids, attention_mask, token_type_ids: `[B, L]`, see `Bert`.
      pooling: "max" or "sum", over the tokens of a row.
      activation: "relu" for log(1 + relu(logit)); "log1p_relu" takes the logarithm of 1
        and that once more (Geng et al., 2025, arXiv 2504.14839).
      deterministic: False draws dropout from the rng named "dropout".

    >>> head = MaskedLM(encoder)
    >>> tree = jax.eval_shape(head.init, key, ids)
    >>> rows = ids, jnp.ones_like(ids)
    >>> jax.eval_shape(lambda p: head.apply(p, *rows, method=word_weights), tree).shape
    (2, 31)
    """
    inputs = (input_ids, attention_mask, token_type_ids)
    x = head.encoder(*inputs, deterministic=deterministic)
    B, L = input_ids.shape
    V = head.encoder.config.vocab_size
    P = min(L, max(FEWEST_POSITIONS, MOST_LOGITS // (B * V)))
    count = -(-L // P)
    fill = ((0, 0), (0, count * P - L))
    x = jnp.pad(x, (*fill, (0, 0))).reshape(B, count, P, -1).swapaxes(0, 1)
    mask = jnp.pad(attention_mask > 0, fill).reshape(B, count, P).swapaxes(0, 1)

    def add(head, weights, part):
        logits = head.mlm(part[0], head.encoder.attend)
        return pooled(weights, logits, part[1], pooling, activation), None

    # Computed again in the backward pass: no gradient keeps the logits.
    step = nn.scan(
        nn.remat(add), variable_broadcast="params", split_rngs={"params": False}
    )
    weights, _ = step(head, jnp.zeros((B, V)), (x, mask))
    return log1p_twice(weights, activation) if pooling == "max" else weights


def pooled(
    weights: jax.Array,
    logits: jax.Array,
    mask: jax.Array,
    pooling: str,
    activation: str,
) -> jax.Array:
    """`[B, V]` with the logits `[B, P, V]` of some more tokens, where `mask` is True.

    The maximum is that of logits: a logarithm of the result has the same order.
    """
    logits = jax.nn.relu(jnp.where(mask[..., None], logits, 0))
    if pooling == "max":
        return jnp.maximum(weights, logits.max(1))
    return weights + log1p_twice(logits, activation).sum(1)


def log1p_twice(x: jax.Array, activation: str) -> jax.Array:
    """log(1 + x), and for "log1p_relu" the same of the result."""
    x = jnp.log1p(x)
    return jnp.log1p(x) if activation == "log1p_relu" else x
