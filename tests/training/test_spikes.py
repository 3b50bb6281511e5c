"""Laws of steps that are skipped because their loss or gradient norm is a spike."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from bert_jax.training import step as steps


def loss(params, batch, key):
    return {"loss": (((params["w"] * batch["x"]) ** 2).sum(), jnp.float32(1))}


def filled(values):
    recent = steps.no_recent_steps()
    for step, pair in enumerate(values):
        recent = steps.remember(recent, jnp.asarray(pair), step)
    return recent


@pytest.mark.parametrize("count", [64, 100, 128, 300])
def test_a_spike_exceeds_the_recent_mean_by_a_number_of_deviations(count):
    values = np.random.default_rng(0).normal(5, 1, (count, 2)).astype(np.float32)
    last = values[-steps.SPIKE_WINDOW :]
    limit = last.mean(0) + 6 * last.std(0, ddof=1)
    recent = filled(values)
    for i in (0, 1):
        below, above = last.mean(0), last.mean(0)
        below[i], above[i] = limit[i] * 0.999, limit[i] * 1.001
        assert not steps.is_spike(recent, below, 6.0)
        assert steps.is_spike(recent, above, 6.0)
    assert not steps.is_spike(recent, -limit, 6.0)


def test_there_is_no_spike_before_the_window_is_half_full():
    ones = np.ones((steps.SPIKE_WINDOW // 2, 2), np.float32)
    assert not steps.is_spike(filled(ones[1:]), jnp.full(2, 1e9), 6.0)
    assert steps.is_spike(filled(ones), jnp.full(2, 1e9), 6.0)


def test_numbers_that_are_not_finite_are_not_remembered():
    recent = filled(np.ones((3, 2), np.float32))
    after = steps.remember(recent, jnp.array([jnp.nan, 1.0]), 3)
    np.testing.assert_array_equal(after, recent)


def test_a_spike_changes_nothing_but_the_window():
    optimizer = optax.adam(1e-3)
    init = steps.make_init(lambda key: {"params": {"w": jnp.ones(2)}}, optimizer, 6.0)
    make = steps.make_train_step
    update = jax.jit(make(loss, {"loss": 1.0}, optimizer, skip_spikes=6.0))
    state, key = init(jax.random.key(0), {}), jax.random.key(1)
    draw = np.random.default_rng(0)
    for _ in range(70):
        batch = {"x": jnp.asarray(draw.normal(1, 0.1, 2), jnp.float32)}
        state, totals = update(state, batch, key)
        assert totals["skipped"][0] == 0
    after, totals = update(state, {"x": jnp.full(2, 100.0)}, key)
    assert totals["skipped"][0] == 1 and totals["not_finite"][0] == 0
    assert totals["loss"][0] == 0 and after.step == 71
    old, new = (jax.tree.leaves((s.params, s.opt_state)) for s in (state, after))
    for x, y in zip(old, new, strict=True):
        np.testing.assert_array_equal(x, y)
    assert after.recent[0].max() > 1e3
    # A loss that stays there is not a spike for long.
    skipped = []
    for _ in range(20):
        after, totals = update(after, {"x": jnp.full(2, 100.0)}, key)
        skipped.append(int(totals["skipped"][0]))
    assert 1 in skipped and 0 in skipped
