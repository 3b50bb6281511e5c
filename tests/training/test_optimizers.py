import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from bert_jax.training.optimizers import (
    OptimizerConfig,
    decay_mask,
    global_norm,
    learning_rate,
    make_optimizer,
)

STEPS = 23
SHAPES = {
    "encoder": {
        "embeddings": {"word": (13, 5), "norm": {"scale": (5,), "bias": (5,)}},
        "layer_0": {"attention": {"query": {"kernel": (5, 7), "bias": (7,)}}},
    },
    "mlm": {"bias": (13,)},
}
DECAYED = ("word", "kernel")


def flat(tree):
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    name = jax.tree_util.keystr
    return {name(p, simple=True, separator="/"): np.array(x, "f8") for p, x in leaves}


def random_tree(seed, scale=1.0):
    rng = np.random.default_rng(seed)
    return jax.tree.map(
        lambda s: jnp.asarray(scale * rng.normal(size=s), jnp.float32),
        SHAPES,
        is_leaf=lambda x: isinstance(x, tuple),
    )


def gradients_at(step):
    # Large enough to be clipped at every other step only.
    return random_tree(100 + step, scale=0.5 if step % 2 else 0.01)


def train(config, steps=6):
    """The parameters after each step, under jit, as flat float64 arrays."""
    optimizer = make_optimizer(config, STEPS)
    params = random_tree(0)
    state = optimizer.init(params)

    @jax.jit
    def apply(params, state, gradients):
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state

    history = []
    for step in range(steps):
        params, state = apply(params, state, gradients_at(step))
        history.append(flat(params))
    return history


def google_rate(step, peak, warmup, total):
    return peak * step / warmup if step < warmup else peak * (1 - step / total)


def clipped(gradients, limit):
    norm = np.sqrt(sum((g**2).sum() for g in gradients.values()))
    return {k: g * limit / max(norm, limit) for k, g in gradients.items()}


def google_adam(steps, *, peak, warmup, decay=0.01, trust=False):
    """AdamWeightDecayOptimizer (or ALBERT's LAMB) in NumPy, parameter by parameter."""
    params = flat(random_tree(0))
    m = {k: np.zeros_like(p) for k, p in params.items()}
    v = {k: np.zeros_like(p) for k, p in params.items()}
    history = []
    for step in range(steps):
        for k, g in clipped(flat(gradients_at(step)), 1.0).items():
            m[k] = 0.9 * m[k] + 0.1 * g
            v[k] = 0.999 * v[k] + 0.001 * g**2
            update = m[k] / (np.sqrt(v[k]) + 1e-6)
            ratio = 1.0
            if k.endswith(DECAYED):
                update = update + decay * params[k]
                if trust:
                    ratio = np.linalg.norm(params[k]) / np.linalg.norm(update)
            rate = google_rate(step, peak, warmup, STEPS)
            params[k] = params[k] - rate * ratio * update
        history.append(dict(params))
    return history


def assert_same_history(got, expected):
    for step, (a, b) in enumerate(zip(got, expected, strict=True)):
        for k in b:
            # A few float32 roundings of numbers up to about 3.
            np.testing.assert_allclose(a[k], b[k], atol=3e-6, err_msg=f"{step} {k}")


def test_bert_adam_equals_googles():
    config = OptimizerConfig(learning_rate=0.02, warmup_steps=3)
    assert_same_history(train(config), google_adam(6, peak=0.02, warmup=3))


def test_lamb_equals_alberts():
    config = OptimizerConfig(name="lamb", learning_rate=0.02, warmup_steps=3)
    assert_same_history(train(config), google_adam(6, peak=0.02, warmup=3, trust=True))


def test_lamb_moves_a_parameter_that_is_zero():
    optimizer = make_optimizer(OptimizerConfig(name="lamb"), STEPS)
    params = {"kernel": jnp.zeros((3, 5))}
    update = jax.jit(optimizer.update)
    updates, _ = update({"kernel": jnp.ones((3, 5))}, optimizer.init(params), params)
    assert np.isfinite(updates["kernel"]).all() and (updates["kernel"] < 0).all()


def test_adamw_equals_optax_adamw_after_clipping():
    config = OptimizerConfig(name="adamw", learning_rate=0.02, schedule="constant")
    reference = optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.adamw(0.02, eps=1e-6, weight_decay=0.01, mask=decay_mask),
    )
    params, history = random_tree(0), []
    state, update = reference.init(params), jax.jit(reference.update)
    for step in range(6):
        updates, state = update(gradients_at(step), state, params)
        params = optax.apply_updates(params, updates)
        history.append(flat(params))
    assert_same_history(train(config), history)


@pytest.mark.parity
def test_adamw_equals_torch_adamw():
    torch = pytest.importorskip("torch")
    start = flat(random_tree(0))
    leaves = {k: torch.nn.Parameter(torch.tensor(p)) for k, p in start.items()}
    groups = [
        {"params": [p for k, p in leaves.items() if k.endswith(DECAYED)]},
        {
            "params": [p for k, p in leaves.items() if not k.endswith(DECAYED)],
            "weight_decay": 0.0,
        },
    ]
    reference = torch.optim.AdamW(groups, lr=0.02, eps=1e-6, weight_decay=0.01)
    history = []
    for step in range(6):
        for k, g in flat(gradients_at(step)).items():
            leaves[k].grad = torch.tensor(g)
        torch.nn.utils.clip_grad_norm_(leaves.values(), 1.0)
        reference.step()
        history.append({k: p.detach().numpy().copy() for k, p in leaves.items()})
    config = OptimizerConfig(name="adamw", learning_rate=0.02, schedule="constant")
    assert_same_history(train(config), history)


def test_bert_adam_and_adamw_differ_only_by_the_bias_correction():
    def first_move(name):
        config = OptimizerConfig(name, 0.02, "constant", weight_decay=0.0, eps=1e-12)
        return train(config, steps=1)[0]["mlm/bias"] - flat(random_tree(0))["mlm/bias"]

    # m / sqrt(v) starts at 0.1 / sqrt(0.001) of its corrected value.
    expected = first_move("adamw") * 0.1 / 0.001**0.5
    np.testing.assert_allclose(first_move("bert_adam"), expected, rtol=1e-4)


def test_decay_spares_biases_and_norm_scales_but_not_embeddings():
    mask = flat(decay_mask(random_tree(0)))
    assert {k for k, decays in mask.items() if decays} == {
        "encoder/embeddings/word",
        "encoder/layer_0/attention/query/kernel",
    }


def test_query_biases_of_xlnet_decay_as_in_its_own_code():
    attention = {"content_bias": 0.0, "query": {"kernel": 0.0, "bias": 0.0}}
    assert decay_mask({"attention": attention}) == {
        "attention": {"content_bias": True, "query": {"kernel": True, "bias": False}}
    }


def test_the_first_google_step_changes_nothing_under_warmup():
    config = OptimizerConfig(learning_rate=0.02, warmup_steps=3)
    before, after = flat(random_tree(0)), train(config, steps=1)[0]
    for k in before:
        np.testing.assert_array_equal(before[k], after[k])


def test_the_state_has_the_same_paths_under_every_config():
    configs = [OptimizerConfig(), OptimizerConfig(clip_norm=0)]
    configs += [OptimizerConfig(name="adamw"), OptimizerConfig(name="lamb")]
    states = [make_optimizer(c, STEPS).init(random_tree(0)) for c in configs]
    assert all(flat(s).keys() == flat(states[0]).keys() for s in states)


@pytest.mark.parametrize("off", [0, 0.0, None])
def test_clipping_can_be_turned_off(off):
    params = {"kernel": jnp.full((3, 5), 4.0)}

    def first_moment(clip_norm):
        optimizer = make_optimizer(OptimizerConfig(clip_norm=clip_norm), STEPS)
        state = optimizer.update(params, optimizer.init(params), params)[1]
        return state[1].mu["kernel"]

    np.testing.assert_allclose(np.linalg.norm(first_moment(2.0)), 0.1 * 2.0, rtol=1e-6)
    np.testing.assert_allclose(first_moment(off), 0.1 * 4.0, rtol=1e-6)


def test_global_norm_keeps_six_digits_over_leaves_of_unequal_size():
    rng = np.random.default_rng(3)
    shapes = {"a": (3001, 257)} | {f"b_{i}": (257,) for i in range(150)}
    tree = {k: 1e-3 * rng.normal(size=s).astype("f4") for k, s in shapes.items()}
    exact = np.sqrt(sum((x.astype("f8") ** 2).sum() for x in tree.values()))
    assert float(jax.jit(global_norm)(tree)) == pytest.approx(exact, rel=1e-6)


def test_a_gradient_that_is_not_finite_shows_in_the_norm():
    for bad in (np.nan, np.inf):
        norm = global_norm({"a": jnp.ones((2, 3)), "b": jnp.array(bad)})
        assert not np.isfinite(norm)


def test_the_logged_learning_rate_is_the_one_applied():
    config = OptimizerConfig(learning_rate=0.02, warmup_steps=3, weight_decay=0.0)
    rate = jax.jit(learning_rate(config, STEPS))
    history = [flat(random_tree(0)), *train(config)]
    reference = google_adam(6, peak=0.02, warmup=3, decay=0.0)
    for step in range(6):
        assert float(rate(step)) == pytest.approx(google_rate(step, 0.02, 3, STEPS))
        moved = history[step + 1]["mlm/bias"] - history[step]["mlm/bias"]
        assert (np.abs(moved).max() > 0) == (float(rate(step)) > 0)
    assert_same_history(history[1:], reference)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("name", "sgd", "optimizer.name='sgd' is not known; choose one of bert_adam,"),
        ("schedule", "step", "optimizer.schedule='step' is not known; choose one of"),
        ("learning_rate", 0.0, "optimizer.learning_rate=0.0 must be a positive"),
        ("learning_rate", float("nan"), "optimizer.learning_rate=nan must be"),
        ("weight_decay", -0.1, "optimizer.weight_decay=-0.1 must be zero or"),
        ("b1", 1.0, r"optimizer.b1=1.0 must be in \[0, 1\)"),
        ("b2", -0.5, r"optimizer.b2=-0.5 must be in \[0, 1\)"),
        ("eps", 0.0, "optimizer.eps=0.0 must be a positive number"),
        ("clip_norm", -1.0, "optimizer.clip_norm=-1.0 must be a positive number, or 0"),
        ("warmup_steps", -1, "warmup_steps=-1 must be between 0 and num_steps=23"),
        ("warmup_steps", 24, "warmup_steps=24 must be between 0 and num_steps=23"),
        ("decay_steps", 5, "decay_steps=5 has no effect on the schedule 'google'"),
    ],
)
def test_an_impossible_setting_is_refused_by_name(field, value, message):
    config = OptimizerConfig()
    setattr(config, field, value)
    with pytest.raises(ValueError, match=message):
        config.validate(STEPS)


@pytest.mark.parametrize("decay_steps", [0, 21])
def test_warmup_and_decay_must_fit_into_the_run(decay_steps):
    config = OptimizerConfig(
        schedule="warmup_stable_decay", warmup_steps=3, decay_steps=decay_steps
    )
    with pytest.raises(ValueError, match="num_steps - warmup_steps = 20; choose"):
        make_optimizer(config, STEPS)


def test_a_run_of_no_steps_is_refused():
    with pytest.raises(ValueError, match="num_steps=0 must be at least 1"):
        OptimizerConfig().validate(0)
