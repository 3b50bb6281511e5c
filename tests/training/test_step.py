"""Laws of one update."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from bert_jax.training import step as steps

OBJECTIVE = {"a_loss": 1.0, "b_loss": 0.5}


def loss(params, batch, key):
    """Two averages with counts of their own, as masked LM and NSP have."""
    error = (batch["x"] @ params["w"] - batch["y"]) ** 2
    weights = batch["weight"]
    return {
        "a_loss": ((error * weights).sum(), weights.sum()),
        "b_loss": (jnp.abs(params["w"]).sum() * len(error), jnp.float32(len(error))),
    }


def setting(rows=12):
    draw = np.random.default_rng(0)
    batch = {
        "x": draw.normal(size=(rows, 3)).astype(np.float32),
        "y": draw.normal(size=rows).astype(np.float32),
        # Micro-batches of unequal weight: averaging their averages would be wrong.
        "weight": np.arange(rows, dtype=np.float32) ** 2,
    }
    optimizer = optax.sgd(0.1)
    init = steps.make_init(
        lambda key: {"params": {"w": jax.random.normal(key, (3,))}}, optimizer
    )
    return init(jax.random.key(0), {}), batch, optimizer


def test_micro_batches_give_the_update_of_the_whole_batch():
    state, batch, optimizer = setting()
    updated = {}
    for parts in (1, 2, 3, 6):
        update = jax.jit(steps.make_train_step(loss, OBJECTIVE, optimizer, parts))
        new, totals = update(state, batch, jax.random.key(1))
        updated[parts] = new.params["w"]
        np.testing.assert_allclose(totals["a_loss"][1], batch["weight"].sum())
    for parts in (2, 3, 6):
        np.testing.assert_allclose(updated[parts], updated[1], rtol=1e-5)
    assert (updated[1] != state.params["w"]).all()


def test_every_micro_batch_holds_rows_from_all_over_the_batch():
    parts = steps.split_batch({"x": jnp.arange(12)}, 3)["x"]
    assert parts.tolist() == [[0, 3, 6, 9], [1, 4, 7, 10], [2, 5, 8, 11]]


def test_each_step_has_its_own_key():
    seen = []

    def noisy(params, batch, key):
        value = jax.random.uniform(key)
        return {"a_loss": (params["w"].sum() * value, jnp.float32(1))}

    state, batch, optimizer = setting()
    update = jax.jit(steps.make_train_step(noisy, {"a_loss": 1.0}, optimizer))
    for _ in range(3):
        state, totals = update(state, batch, jax.random.key(1))
        seen.append(float(totals["grad_norm"][0]))
    assert len(set(seen)) == 3


def test_pretrained_parameters_replace_initial_ones_as_arguments_of_one_program():
    _, _, optimizer = setting()
    init = steps.make_init(
        lambda key: {"params": {"a": jnp.zeros(2), "b": jnp.zeros(3)}}, optimizer
    )
    program = jax.jit(init)
    for pretrained in ({"b": jnp.arange(3.0)}, {"b": jnp.arange(3.0) + 4}):
        state = program(jax.random.key(0), pretrained)
        assert state.params["b"].tolist() == pretrained["b"].tolist()
        assert state.params["a"].tolist() == [0, 0] and state.step == 0
    # Values that were constants of the program would compile it again.
    assert program._cache_size() == 1
