"""Laws of frozen parameters and of layer-wise learning rates."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.training.optimizers import (
    OptimizerConfig,
    check_frozen,
    freeze,
    make_optimizer,
    rate_factors,
)

PARAMS = {
    "encoder": {
        "embeddings": {"word": jnp.ones((3, 2))},
        "layer_0": {"mlp": {"kernel": jnp.ones((2, 2))}},
        "layer_1": {"mlp": {"kernel": jnp.ones((2, 2)), "bias": jnp.ones(2)}},
    },
    "classifier": {"kernel": jnp.ones((2, 2))},
}


def leaf(tree, path):
    for part in path.split("/"):
        tree = tree[part]
    return tree


def test_layer_rates_equal_those_of_electra():
    # google-research/electra, optimization.py: decay ** (n + 2 - depth).
    rates = rate_factors(PARAMS, (), 0.5)
    expected = {
        "encoder/embeddings/word": 0.5**4,
        "encoder/layer_0/mlp/kernel": 0.5**3,
        "encoder/layer_1/mlp/bias": 0.5**2,
        "classifier/kernel": 1.0,
    }
    assert {path: leaf(rates, path) for path in expected} == expected


def one_step(config, grads=None):
    optimizer = make_optimizer(config, 10)
    grads = grads or jax.tree.map(lambda x: 0.3 * x, PARAMS)
    updates, _ = optimizer.update(grads, optimizer.init(PARAMS), PARAMS)
    return updates


@pytest.mark.parametrize("name", ["bert_adam", "adamw", "lamb"])
def test_the_first_update_shrinks_by_the_decay(name):
    plain = OptimizerConfig(name=name, learning_rate=0.1, schedule="constant")
    decayed = OptimizerConfig(
        name=name, learning_rate=0.1, schedule="constant", layer_decay=0.8
    )
    a, b = one_step(plain), one_step(decayed)
    for path, power in (
        ("encoder/embeddings/word", 4),
        ("encoder/layer_1/mlp/kernel", 2),
        ("classifier/kernel", 0),
    ):
        np.testing.assert_allclose(leaf(b, path), leaf(a, path) * 0.8**power, rtol=1e-6)
        assert np.abs(leaf(b, path)).min() > 0


def test_frozen_parameters_have_no_gradient_or_decay_and_others_train_as_usual():
    frozen = ("embeddings", "layer_[0]")

    def loss(params):
        params = freeze(params, frozen)
        return sum(jnp.sum(x**2) for x in jax.tree.leaves(params))

    grads = jax.grad(loss)(PARAMS)
    updates = one_step(
        OptimizerConfig(learning_rate=0.1, schedule="constant", frozen=frozen), grads
    )
    for path in ("encoder/embeddings/word", "encoder/layer_0/mlp/kernel"):
        assert not np.any(leaf(grads, path)) and not np.any(leaf(updates, path))
    for path in ("encoder/layer_1/mlp/bias", "classifier/kernel"):
        assert np.all(leaf(grads, path)) and np.all(leaf(updates, path))


def test_the_backward_pass_of_frozen_layers_is_not_computed():
    def loss(params, frozen):
        params = freeze(params, frozen)
        x = params["encoder"]["embeddings"]["word"]
        x = jnp.sin(x @ params["encoder"]["layer_0"]["mlp"]["kernel"])
        return jnp.sum(x @ params["encoder"]["layer_1"]["mlp"]["kernel"])

    def cosines(frozen):
        return str(jax.make_jaxpr(jax.grad(loss), static_argnums=1)(PARAMS, frozen))

    assert "cos" in cosines(()) and "cos" not in cosines(("embeddings", "layer_0"))


def test_a_pattern_that_matches_no_path_is_refused_with_the_paths():
    check_frozen(PARAMS, ("layer_[01]", "classifier"))
    with pytest.raises(ValueError, match="frozen has 'layer_2', .* encoder, embeddin"):
        check_frozen(PARAMS, ("layer_2",))
