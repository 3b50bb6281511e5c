"""What learning from another model takes: its parameters, and measures of distance."""

import dataclasses
import hashlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

Total = tuple[jax.Array, jax.Array]


def computed_in(head: nn.Module, dtype: str) -> nn.Module:
    """A loaded head on an encoder that computes in `dtype`."""
    config = dataclasses.replace(head.encoder.config, dtype=dtype)
    return head.clone(encoder=config.build())


def digest(tree: Any) -> str:
    """Sixteen hex digits of the values of arrays."""
    total = hashlib.sha256()
    for x in jax.tree.leaves(tree):
        total.update(np.ascontiguousarray(x).tobytes())
    return total.hexdigest()[:16]


def soft_targets(
    logits: jax.Array, targets: jax.Array, weights: jax.Array, temperature: float
) -> Total:
    """How far `[..., V]` logits are from softened targets, as (sum, count).

    The Kullback-Leibler divergence at a temperature T, times T squared, so that its
    gradients have the size of those of other losses (Hinton et al., 2015, section 2).
    """
    ours = jax.nn.log_softmax(logits / temperature)
    theirs = jax.nn.log_softmax(targets / temperature)
    apart = jnp.sum(jnp.exp(theirs) * (theirs - ours), -1) * temperature**2
    return (apart * weights).sum(), weights.sum().astype(jnp.float32)


def cosine(x: jax.Array, y: jax.Array, weights: jax.Array) -> Total:
    """1 - cosine of `[B, L, D]` states, as (sum, count)."""
    x, y = x.astype(jnp.float32), y.astype(jnp.float32)
    lengths = jnp.sum(x * x, -1) * jnp.sum(y * y, -1)
    apart = 1 - jnp.sum(x * y, -1) * jax.lax.rsqrt(jnp.maximum(lengths, 1e-16))
    return (apart * weights).sum(), weights.sum().astype(jnp.float32)
