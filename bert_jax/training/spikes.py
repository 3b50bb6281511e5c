"""Which steps stick out: the loss or the gradient norm is far above the last ones."""

import jax
import jax.numpy as jnp

# As OLMo-core's SkipStepOptimizer, which OLMo 2 was trained with, has it: so many
# steps are compared with, once half of them are there, and 6 deviations are its limit.
WINDOW = 128


def nothing_yet() -> jax.Array:
    """`[3, W]`: loss and gradient norm of the last steps, and 1 where there is one."""
    return jnp.zeros((3, WINDOW))


def is_spike(recent: jax.Array, values: jax.Array, sigma: float) -> jax.Array:
    """Whether one of `values` `[2]` is `sigma` deviations above the mean of `recent`.

    The deviation is that of a sample (n - 1).
    """
    kept, there = recent[:2], recent[2:]
    count = there.sum()
    mean = (kept * there).sum(1) / jnp.maximum(count, 1)
    squares = ((kept - mean[:, None]) ** 2 * there).sum(1)
    deviation = jnp.sqrt(squares / jnp.maximum(count - 1, 1))
    return (count >= WINDOW // 2) & (values - mean > sigma * deviation).any()


def remember(recent: jax.Array, values: jax.Array, step: jax.Array) -> jax.Array:
    """`recent` with `values` `[2]` of `step` in the place of the oldest.

    A spike is remembered too, so that a loss that stays high is no spike for long;
    what is not finite is not.
    """
    column = jnp.append(values, 1.0)
    new = recent.at[:, step % WINDOW].set(column)
    return jnp.where(jnp.isfinite(values).all(), new, recent)
