"""One update, and one evaluation, as pure functions to be jitted."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import struct

from bert_jax.training.optimizers import global_norm
from bert_jax.training.task import Batch, Params, Totals

# As OLMo-core's SkipStepOptimizer, which OLMo 2 was trained with, has it: so many
# steps are compared with, once half of them are there, and 6 deviations are its limit.
SPIKE_WINDOW = 128

# (params, batch, key) -> totals.
Loss = Callable[[Params, Batch, jax.Array | None], Totals]


class TrainState(struct.PyTreeNode):
    """All that changes from step to step; `recent` is what spikes are measured by."""

    step: jax.Array
    params: Any
    opt_state: Any
    recent: jax.Array | None = None


def make_init(
    init: Callable[[jax.Array], Any],
    optimizer: optax.GradientTransformation,
    skip_spikes: float = 0.0,
) -> Callable[..., TrainState]:
    """`(key, pretrained) -> TrainState`; `pretrained` replaces parts of the parameters.

    The state is made inside jit, so that it is created in its layout, and `pretrained`
    enters as an argument: a closure would bake it into the
    program.
    """

    def make(key, pretrained):
        params = {**init(key)["params"], **pretrained}
        recent = no_recent_steps() if skip_spikes else None
        step = jnp.zeros((), jnp.int32)
        return TrainState(step, params, optimizer.init(params), recent)

    return make


def make_train_step(
    loss: Loss,
    objective: Mapping[str, float],
    optimizer: optax.GradientTransformation,
    accumulation: int = 1,
    skip_spikes: float = 0.0,
    *,
    gather: Callable[[Any], Any] = lambda params: params,
    scatter: Callable[[Any], Any] = lambda gradients: gradients,
) -> Callable[[TrainState, dict[str, jax.Array], jax.Array], tuple[TrainState, Totals]]:
    """`(state, batch, key) -> (state, totals)`.

    Where the objective or a gradient is not finite, or a spike, parameters and
    optimizer state stay as they are and nothing of the batch is counted; `skipped` says
    so, and `not_finite` which of the two it was.

    Args:
      loss: gives totals, the terms of the objective among them.
      objective: weight of each of these terms; each is divided by its count over the
        whole batch, so that micro-batches give the gradient of the whole batch.
      optimizer: the Optax transform.
      accumulation: micro-batches to scan over.
      skip_spikes: deviations that make a spike, see `is_spike`; 0 for none.
      gather: parameters as they lie -> as they are computed with.
      scatter: gradients of the latter -> of the former.
    """

    optimizer = optax.with_extra_args_support(optimizer)
    gradient = _scattered(jax.grad(_objective(loss, objective), has_aux=True), scatter)
    if accumulation > 1:
        gradient = _accumulate(gradient, loss, objective, accumulation)

    def train_step(state, batch, key):
        key = jax.random.fold_in(key, state.step)
        grads, totals = gradient(gather(state.params), batch, key)
        norm = global_norm(grads)
        totals["grad_norm"] = norm, jnp.ones(())
        value = sum(w * _average(totals[name]) for name, w in objective.items())
        values, recent = jnp.stack([value, norm]), state.recent
        finite = wanted = jnp.isfinite(values).all()
        if skip_spikes:
            wanted = finite & ~is_spike(recent, values, skip_spikes)
            recent = remember(recent, values, state.step)

        def update():
            old = state.opt_state, state.params
            updates, new = optimizer.update(grads, *old, norm=norm)
            return optax.apply_updates(state.params, updates), new

        # Not `where`, which would read all of the old state again.
        params, moments = jax.lax.cond(
            wanted, update, lambda: (state.params, state.opt_state)
        )
        totals = jax.tree.map(lambda x: jnp.where(wanted, x, 0), totals)
        totals["skipped"] = 1.0 - wanted, jnp.ones(())
        totals["not_finite"] = 1.0 - finite, jnp.ones(())
        return TrainState(state.step + 1, params, moments, recent), totals

    return train_step


def _objective(loss, objective):
    """The weighted sum of averages; `counts` are the batch's own unless given."""

    def weighted(params, batch, key, counts=None):
        totals = loss(params, batch, key)
        counts = counts or {name: totals[name][1] for name in objective}
        terms = [
            weight * _average((totals[name][0], counts[name]))
            for name, weight in objective.items()
        ]
        return sum(terms), totals

    return weighted


def _scattered(gradient, scatter):
    """Scattered in each micro-batch, so that sums of them are kept scattered too."""

    def scattered(*args):
        grads, totals = gradient(*args)
        return scatter(grads), totals

    return scattered


def _average(pair):
    return pair[0] / jnp.maximum(pair[1], 1)


def _accumulate(gradient, loss, objective, parts):
    """The same gradient, computed in micro-batches one after the other."""

    def accumulated(params, batch, key):
        micro = split_batch(batch, parts), jax.random.split(key, parts)

        # Counts depend on the data alone: the compiler drops the model from this scan.
        def count(_, part):
            totals = loss(params, *part)
            return None, {name: totals[name][1] for name in objective}

        counts = jax.tree.map(jnp.sum, jax.lax.scan(count, None, micro)[1])

        def add(sums, part):
            return jax.tree.map(jnp.add, sums, gradient(params, *part, counts)), None

        first = jax.tree.map(lambda x: x[0], micro)
        shapes = jax.eval_shape(gradient, params, *first, counts)
        zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
        return jax.lax.scan(add, zeros, micro)[0]

    return accumulated


def split_batch(batch: dict[str, jax.Array], parts: int) -> dict[str, jax.Array]:
    """`[B, ...] -> [parts, B / parts, ...]`, row b in part `b % parts`.

    Strided, so that every device holds rows of every micro-batch.
    """
    return jax.tree.map(
        lambda x: x.reshape(-1, parts, *x.shape[1:]).swapaxes(0, 1), batch
    )


def add_totals(a: Totals | None, b: Totals) -> Totals:
    """Sum of two totals, name by name."""
    return b if a is None else _add(a, b)


_add = jax.jit(functools.partial(jax.tree.map, jnp.add))


def no_recent_steps() -> jax.Array:
    """`[3, W]`: loss and gradient norm of the last steps, and 1 for each of them."""
    return jnp.zeros((3, SPIKE_WINDOW))


def is_spike(recent: jax.Array, values: jax.Array, sigma: float) -> jax.Array:
    """True if one of `values` `[2]` is `sigma` deviations above the mean of `recent`.

    The deviation is that of a sample (n - 1).
    """
    past, valid = recent[:2], recent[2:]
    count = valid.sum()
    mean = (past * valid).sum(1) / jnp.maximum(count, 1)
    squares = ((past - mean[:, None]) ** 2 * valid).sum(1)
    deviation = jnp.sqrt(squares / jnp.maximum(count - 1, 1))
    return (count >= SPIKE_WINDOW // 2) & (values - mean > sigma * deviation).any()


def remember(recent: jax.Array, values: jax.Array, step: jax.Array) -> jax.Array:
    """`recent` with `values` `[2]` of `step` in the place of the oldest.

    A spike is remembered too, so that a loss that stays high is not a spike for long;
    what is not finite is not.
    """
    column = jnp.append(values, 1.0)
    new = recent.at[:, step % SPIKE_WINDOW].set(column)
    return jnp.where(jnp.isfinite(values).all(), new, recent)
