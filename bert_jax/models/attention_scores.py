"""Score functions of attention: how well a query fits each key.

A softmax over the keys makes weights of the scores. Encoders here use `scaled_dot`; the
others are for comparison, and for attention of your own. Queries are `[..., K]` and
keys `[..., M, K]`, with the axes of a batch before these; scores are `[..., M]`.
"""

import jax
import jax.numpy as jnp


def cosine(query: jax.Array, keys: jax.Array) -> jax.Array:
    """q · k / (‖q‖ ‖k‖) (Graves et al., 2014, section 3.3.1).

    >>> cosine(jnp.array([2.0, 0.0]), jnp.array([[1.0, 0.0], [0.0, 3.0]]))
    Array([1., 0.], dtype=float32)
    """
    lengths = jnp.linalg.norm(query, axis=-1)[..., None]
    return dot(query, keys) / (lengths * jnp.linalg.norm(keys, axis=-1))


def additive(
    query: jax.Array, keys: jax.Array, w: jax.Array, u: jax.Array, v: jax.Array
) -> jax.Array:
    """v · tanh(W q + U k) (Bahdanau et al., 2015, appendix A.1.2).

    Args:
      query, keys: see the module.
      w, u: the matrices W and U, `[D, K]`.
      v: the vector v, `[D]`.

    >>> ones = jnp.ones((1, 2))
    >>> additive(jnp.zeros(2), jnp.zeros((3, 2)), ones, ones, jnp.ones(1)).shape
    (3,)
    """
    hidden = jnp.einsum("...K,DK->...D", query, w)[..., None, :]
    hidden = jnp.tanh(hidden + jnp.einsum("...MK,DK->...MD", keys, u))
    return jnp.einsum("...MD,D->...M", hidden, v)


def location(query: jax.Array, w: jax.Array) -> jax.Array:
    """(W q)[m], independent of the key at m (Luong et al., 2015, section 3.1).

    `w` is the matrix W, `[M, K]`, with a row for each place.

    >>> location(jnp.array([1.0, 2.0]), jnp.eye(3, 2))
    Array([1., 2., 0.], dtype=float32)
    """
    return jnp.einsum("...K,MK->...M", query, w)


def general(query: jax.Array, keys: jax.Array, w: jax.Array) -> jax.Array:
    """q · W k (Luong et al., 2015, section 3.1), with the matrix W `[K, K]`.

    >>> general(jnp.ones(2), jnp.eye(2), 2 * jnp.eye(2))
    Array([2., 2.], dtype=float32)
    """
    return dot(query, jnp.einsum("...MK,DK->...MD", keys, w))


def dot(query: jax.Array, keys: jax.Array) -> jax.Array:
    """q · k (Luong et al., 2015, section 3.1).

    >>> dot(jnp.array([1.0, 2.0]), jnp.eye(2))
    Array([1., 2.], dtype=float32)
    """
    return jnp.einsum("...K,...MK->...M", query, keys)


def scaled_dot(query: jax.Array, keys: jax.Array) -> jax.Array:
    """q · k / √K (Vaswani et al., 2017, section 3.2.1), the score of every encoder.

    >>> scaled_dot(jnp.full(4, 3.0), jnp.eye(4))
    Array([1.5, 1.5, 1.5, 1.5], dtype=float32)
    """
    return dot(query, keys) / query.shape[-1] ** 0.5
