import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.training.schedules import SCHEDULES

WARMUP, TOTAL, DECAY = 7, 31, 11


def factors(name, warmup=WARMUP, total=TOTAL, decay=DECAY):
    schedule = jax.jit(lambda t: SCHEDULES[name](t, warmup, total, decay))
    return np.array([schedule(jnp.int32(t)) for t in range(total + 3)])


def test_google_decays_from_step_zero_and_jumps_when_the_warmup_ends():
    expected = [t / WARMUP if t < WARMUP else 1 - t / TOTAL for t in range(TOTAL)]
    np.testing.assert_allclose(factors("google"), expected + [0, 0, 0], atol=1e-7)
    assert factors("google")[WARMUP] == pytest.approx(1 - WARMUP / TOTAL)


def test_linear_reaches_one_after_the_warmup_and_zero_at_the_end():
    up = [t / WARMUP for t in range(WARMUP)]
    down = [(TOTAL - t) / (TOTAL - WARMUP) for t in range(WARMUP, TOTAL)]
    np.testing.assert_allclose(factors("linear"), up + down + [0, 0, 0], atol=1e-7)


def test_cosine_is_half_way_down_half_way_through():
    got = factors("cosine")
    assert got[WARMUP] == 1
    assert got[(WARMUP + TOTAL) // 2] == pytest.approx(0.5, abs=1e-6)
    np.testing.assert_allclose(got[TOTAL:], 0, atol=1e-7)
    assert (np.diff(got[WARMUP : TOTAL + 1]) < 0).all()


def test_cosine_to_tenth_ends_at_a_tenth():
    expected = np.minimum(0.1 + 0.9 * factors("cosine"), 1)[WARMUP:]
    np.testing.assert_allclose(factors("cosine_to_tenth")[WARMUP:], expected, atol=1e-6)
    np.testing.assert_allclose(factors("cosine_to_tenth")[TOTAL:], 0.1, atol=1e-6)


def test_warmup_stable_decay_holds_one_until_the_decay():
    got = factors("warmup_stable_decay")
    np.testing.assert_array_equal(got[WARMUP : TOTAL - DECAY + 1], 1)
    np.testing.assert_allclose(got[TOTAL - 1], 1 / DECAY, rtol=1e-5)
    np.testing.assert_array_equal(got[TOTAL:], 0)


def test_warmup_stable_sqrt_falls_fast_at_first():
    got = factors("warmup_stable_sqrt")
    np.testing.assert_array_equal(got[WARMUP : TOTAL - DECAY + 1], 1)
    expected = [1 - (t / DECAY) ** 0.5 for t in range(DECAY + 1)]
    np.testing.assert_allclose(got[TOTAL - DECAY : TOTAL + 1], expected, atol=1e-6)


def test_inverse_sqrt_halves_in_four_times_the_steps():
    got = factors("inverse_sqrt")
    assert got[WARMUP] == 1
    np.testing.assert_allclose(got[4 * WARMUP], 0.5, rtol=1e-6)
    assert (np.diff(got[WARMUP:]) < 0).all()


def test_constant_stays_at_one():
    np.testing.assert_array_equal(factors("constant")[WARMUP:], 1)


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_warms_up_in_a_line_from_zero(name):
    expected = np.arange(WARMUP) / WARMUP
    np.testing.assert_allclose(factors(name)[:WARMUP], expected, atol=1e-7)


@pytest.mark.parametrize("name", SCHEDULES)
def test_without_warmup_every_schedule_starts_at_one(name):
    assert factors(name, warmup=0)[0] == 1


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_stays_between_zero_and_one_at_the_edges(name):
    for warmup, decay in ((0, TOTAL), (TOTAL, 0), (1, 1)):
        got = factors(name, warmup=warmup, decay=decay)
        assert np.isfinite(got).all() and (got >= 0).all() and (got <= 1).all()
