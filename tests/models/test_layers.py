"""Laws of the layers below every encoder."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from bert_jax.models import layers, masks, ops

N = 60_000


def test_dropout_keeps_the_stated_share_and_the_mean():
    x = jnp.ones((N,))
    for rate in (0.1, 0.5):
        y = ops.dropout(x, rate, jax.random.key(3))
        # Five standard deviations of a binomial share.
        assert abs((y == 0).mean() - rate) < 5 * (rate * (1 - rate) / N) ** 0.5
        np.testing.assert_allclose(y[y > 0], 1 / (1 - rate), rtol=1e-6)


def test_dropout_is_independent_between_keys_rows_and_neighbours():
    keys = jax.random.split(jax.random.key(0), 4)
    draws = jnp.stack(
        [ops.dropout(jnp.ones((60, 1000)), 0.5, k) == 0 for k in keys]
    ).reshape(4, -1)
    draws = jnp.where(draws, 1.0, -1.0)
    limit = 5 / N**0.5
    for shift in (0, 1, 2, 1000, 2000):
        moved = jnp.roll(draws, shift, axis=1)
        correlation = draws @ moved.T / N
        if shift == 0:
            correlation -= jnp.eye(4)
        assert jnp.abs(correlation).max() < limit


def test_dropout_is_a_function_of_its_key_alone():
    x = jnp.arange(1.0, 100.0)
    first = ops.dropout(x, 0.3, jax.random.key(1))
    again = jax.jit(lambda x, k: ops.dropout(x, 0.3, k))(x, jax.random.key(1))
    np.testing.assert_allclose(first, again, rtol=1e-6)
    assert (ops.dropout(x, 0.3, jax.random.key(2)) != first).any()


def test_hashed_words_are_uniform():
    words = np.asarray(ops.hash_bits(jax.random.key(5), (256, 1024)))
    n = words.size
    for shift in (0, 8, 16, 24):
        observed = np.bincount((words >> shift).ravel() & 255, minlength=256)
        chi2 = ((observed - n / 256) ** 2 / (n / 256)).sum()
        assert abs(chi2 - 255) < 5 * (2 * 255) ** 0.5
    assert len(np.unique(words)) > 0.999 * n


def test_the_closed_form_of_gelu_is_its_derivative():
    x = jnp.linspace(-6, 6, 101)
    expected = jax.vmap(jax.grad(lambda x: jax.nn.gelu(x, approximate=False)))(x)
    np.testing.assert_allclose(jax.vmap(jax.grad(ops.gelu))(x), expected, atol=1e-6)
    assert abs(ops.gelu(1.0) - 0.8413447) < 1e-6
    assert abs(layers.ACTIVATIONS["gelu_new"](1.0) - 0.8411920) < 1e-6


def test_layer_norm_equals_the_stock_one_and_survives_a_large_mean():
    x = jax.random.normal(jax.random.key(0), (3, 5, 7)) * 2 + 300
    ours, stock = layers.LayerNorm(1e-12), nn.LayerNorm(1e-12, use_fast_variance=False)
    params = {"scale": jnp.arange(1.0, 8.0), "bias": jnp.arange(7.0)}
    np.testing.assert_allclose(
        ours.apply({"params": params}, x), stock.apply({"params": params}, x), atol=1e-3
    )


def test_visibility_as_a_matrix():
    mask = masks.visible(jnp.array([[1, 1, 2, 0]]))[0, 0].astype(int)
    assert mask.tolist() == [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [1, 1, 1, 0]]


def test_a_fully_padded_row_stays_finite_forward_and_backward():
    q = jax.random.normal(jax.random.key(0), (1, 3, 2, 4))
    mask = jnp.zeros((1, 3), jnp.int32)
    f = lambda q: (layers.attend(q, q, q, mask) ** 2).sum()  # noqa: E731
    assert np.isfinite(f(q)) and np.isfinite(jax.grad(f)(q)).all()


def test_attention_to_stored_keys_and_values_is_attention_to_the_whole_row():
    x = jax.random.normal(jax.random.key(1), (2, 5, 6))
    attention = layers.Attention(num_heads=3, stddev=0.5)
    seen = jnp.ones((2, 5, 5), jnp.int32)
    params = attention.init(jax.random.key(0), x, seen)
    expected = attention.apply(params, x, seen)
    stored = []

    def keep(key, value):
        stored.extend([key, value])
        return key, value

    attention.apply(params, x[:, :3], seen[:, :3, :3], store=keep)

    def append(*new):
        return [jnp.concatenate(x, 1) for x in zip(stored, new, strict=True)]

    y = attention.apply(params, x[:, 3:], seen[:, 3:], store=append)
    np.testing.assert_allclose(y, expected[:, 3:], atol=1e-5)


def test_the_last_kernel_of_an_mlp_has_its_own_deviation():
    mlp = layers.Mlp(400, stddev=0.1, out_stddev=0.01)
    params = mlp.init(jax.random.key(0), jnp.ones((1, 50)))["params"]
    for name, stddev in (("up", 0.1), ("down", 0.01)):
        measured = float(params[name]["kernel"].std()) / 0.88  # the cut distribution
        assert abs(measured / stddev - 1) < 0.05
