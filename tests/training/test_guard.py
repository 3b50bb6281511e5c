"""Laws of steps whose loss or gradients are not finite."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from tiny import published, written

import bert_jax
from bert_jax.data import pipeline
from bert_jax.tasks.classification import ClassificationConfig
from bert_jax.training import step as steps
from bert_jax.training.config import TrainConfig
from bert_jax.training.optimizers import OptimizerConfig
from bert_jax.training.resume import NOT_FINITE_LIMIT, LoopState


def loss(params, batch, key):
    return {"loss": (((params["w"] * batch["x"]) ** 2).sum(), jnp.float32(2))}


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e30])
def test_a_step_that_is_not_finite_changes_nothing_and_counts_nothing(bad, parts):
    optimizer = optax.adam(0.1)
    init = steps.make_init(lambda key: {"params": {"w": jnp.ones(2)}}, optimizer)
    update = jax.jit(steps.make_train_step(loss, {"loss": 1.0}, optimizer, parts))
    state = init(jax.random.key(0), {})
    good = {"x": jnp.array([1.0, 2.0])}
    state, totals = update(state, good, jax.random.key(1))
    assert float(totals["skipped"][0]) == 0
    after, totals = update(state, {"x": jnp.array([1.0, bad])}, jax.random.key(1))
    assert after.step == 2
    for new, old in zip(
        jax.tree.leaves((after.params, after.opt_state)),
        jax.tree.leaves((state.params, state.opt_state)),
        strict=True,
    ):
        np.testing.assert_array_equal(new, old)
    assert [float(x) for x in totals["skipped"]] == [1, 1]
    assert [float(x) for x in totals["not_finite"]] == [1, 1]
    assert [float(x) for x in totals["loss"]] == [0, 0]


def test_only_steps_in_a_row_that_are_not_finite_make_a_run_diverge():
    loop, diverged = LoopState(), []
    for flag in [1, 1, 0, 1, 1, 1, 0, 0]:
        loop.add_step({"not_finite": (jnp.float32(flag), 1)}, batch_size=4)
        # A run that resumes anywhere counts on.
        loop = LoopState.from_json(json.loads(json.dumps(loop.to_json())))
        diverged.append(loop.diverged)
    # The flag of a step is read when two more have begun.
    assert NOT_FINITE_LIMIT == 3 and diverged.index(True) == 7
    assert not any(diverged[:7]) and loop.examples == 32


@pytest.mark.slow
def test_a_diverged_run_names_the_rows_and_saves_only_finite_numbers(tmp_path):
    start = published(tmp_path)
    files = [str(written(tmp_path / f"{n}.tsv", 64, n)) for n in (0, 1)]
    config = TrainConfig(
        encoder=None,
        task=ClassificationConfig(
            train=files[0], dev=files[1], max_length=16, epochs=9.0
        ),
        optimizer=OptimizerConfig(learning_rate=1e38, schedule="constant"),
        batch_size=16,
        init_from=str(start),
        checkpoint_every=1,
    )
    with pytest.raises(ValueError) as raised:
        bert_jax.train(config, tmp_path / "run")
    first, second, third = str(raised.value).splitlines()
    step = int(first.split("steps ")[1].split()[0])
    whole = config.task.resolve(config)
    source = whole.task.prepare(tmp_path, whole.encoder, 0).rows["train"]
    stop = whole.num_steps * 16
    _, rows = pipeline.examples_and_rows(source, 16, 0, (step - 1) * 16, stop)
    assert f"held the rows {', '.join(map(str, sorted(rows)[:8]))} and 8 more" in second
    assert "lower optimizer.learning_rate=1e+38" in third
    model = bert_jax.load(tmp_path / "run")
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(model.params))
