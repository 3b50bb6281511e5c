"""Learning-rate schedules: the factor on the peak learning rate at each step.

Steps count from 0, and the first update uses step 0. Each schedule is a plain
function `(step, warmup_steps, num_steps, decay_steps) -> factor in [0, 1]` that
traces under `jax.jit`; only those in `DECAYING` read `decay_steps`.
"""

import jax
import jax.numpy as jnp


def google(
    step: jax.Array, warmup_steps: int, num_steps: int, decay_steps: int
) -> jax.Array:
    """BERT's own: warm-up, then `1 - step / num_steps`.

    The decay has been running since step 0, so the rate falls at the end of the
    warm-up from 1 to `1 - warmup_steps / num_steps`.
    """
    decay = 1 - jnp.minimum(step / num_steps, 1.0)
    return jnp.where(step < warmup_steps, _warmup(step, warmup_steps), decay)


def linear(
    step: jax.Array, warmup_steps: int, num_steps: int, decay_steps: int
) -> jax.Array:
    """Up in a line to 1 at `warmup_steps`, down in a line to 0 at `num_steps`."""
    decay = 1 - _progress(step, warmup_steps, num_steps)
    return jnp.minimum(_warmup(step, warmup_steps), decay)


def cosine(
    step: jax.Array, warmup_steps: int, num_steps: int, decay_steps: int
) -> jax.Array:
    """Up in a line to 1 at `warmup_steps`, down half a cosine to 0 at `num_steps`."""
    decay = _half_cosine(step, warmup_steps, num_steps)
    return jnp.minimum(_warmup(step, warmup_steps), decay)


def cosine_to_tenth(
    step: jax.Array, warmup_steps: int, num_steps: int, decay_steps: int
) -> jax.Array:
    """The same with 0.1 at `num_steps` (Brown et al., 2020, appendix B)."""
    decay = 0.1 + 0.9 * _half_cosine(step, warmup_steps, num_steps)
    return jnp.minimum(_warmup(step, warmup_steps), decay)


def warmup_stable_decay(
    step: jax.Array, warmup_steps: int, num_steps: int, decay_steps: int
) -> jax.Array:
    """Warm-up, a plateau at 1, then a line to 0 over the last `decay_steps`.

    A longer run can start from any checkpoint of the plateau (Hu et al. 2024,
    MiniCPM, section 4).
    """
    decay = 1 - _progress(step, num_steps - decay_steps, num_steps)
    return jnp.minimum(_warmup(step, warmup_steps), decay)


def warmup_stable_sqrt(
    step: jax.Array, warmup_steps: int, num_steps: int, decay_steps: int
) -> jax.Array:
    """The same with a decay of 1 minus the root of how much of it is over.

    Hägele et al., 2024, section 4; ModernBERT's last phase.
    """
    decay = 1 - jnp.sqrt(_progress(step, num_steps - decay_steps, num_steps))
    return jnp.minimum(_warmup(step, warmup_steps), decay)


def constant(
    step: jax.Array, warmup_steps: int, num_steps: int, decay_steps: int
) -> jax.Array:
    """Up in a line to 1 at `warmup_steps`, then 1 for ever."""
    return _warmup(step, warmup_steps)


def inverse_sqrt(
    step: jax.Array, warmup_steps: int, num_steps: int, decay_steps: int
) -> jax.Array:
    """Up in a line to 1 at `warmup_steps`, then down with the root of the step.

    Vaswani et al., 2017, equation 3, over its peak.
    """
    decay = jnp.sqrt(max(warmup_steps, 1) / jnp.maximum(step, 1))
    return jnp.minimum(_warmup(step, warmup_steps), decay)


SCHEDULES = {
    "google": google,
    "linear": linear,
    "cosine": cosine,
    "cosine_to_tenth": cosine_to_tenth,
    "warmup_stable_decay": warmup_stable_decay,
    "warmup_stable_sqrt": warmup_stable_sqrt,
    "constant": constant,
    "inverse_sqrt": inverse_sqrt,
}
DECAYING = ("warmup_stable_decay", "warmup_stable_sqrt")


def _warmup(step, warmup_steps):
    return jnp.where(step < warmup_steps, step / max(warmup_steps, 1), 1.0)


def _half_cosine(step, start, stop):
    return 0.5 + 0.5 * jnp.cos(jnp.pi * _progress(step, start, stop))


def _progress(step, start, stop):
    """The share of `[start, stop]` before `step`, from 0 to 1."""
    return jnp.clip((step - start) / max(stop - start, 1), 0.0, 1.0)
