"""Rotary positions (Su et al., 2021): queries and keys turn with their place."""

import jax
import jax.numpy as jnp
import numpy as np


def angles(positions: jax.Array, features: int, theta: float) -> jax.Array:
    """Angles of rotary positions, section 3.2: `[B, L, K / 2]`.

    Pair i of a head's `features` turns by `theta ** (-2 i / features)` a position.
    """
    frequencies = theta ** -(np.arange(0, features, 2) / features)
    return positions[..., None] * jnp.asarray(frequencies, jnp.float32)[None, None]


def rotate(x: jax.Array, angles: jax.Array) -> jax.Array:
    """Turns `[B, L, H, K]` by `angles` `[B, L, K / 2]`: number i with number i + K / 2.

    Then a query's product with a key depends on the distance of their positions alone.
    """
    cos, sin = jnp.cos(angles)[:, :, None], jnp.sin(angles)[:, :, None]
    a, b = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    turned = jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)
    return turned.astype(x.dtype)
