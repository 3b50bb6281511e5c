"""Laws of the score functions: their formulas, batches, and the score of encoders."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.models import attention_scores as scores
from bert_jax.models.layers import attention_weights

K, M, D = 5, 3, 4
draw = np.random.default_rng(0)
QUERY, KEYS = draw.normal(size=K), draw.normal(size=(M, K))
W, U, V = draw.normal(size=(D, K)), draw.normal(size=(D, K)), draw.normal(size=D)
SQUARE, PLACES = draw.normal(size=(K, K)), draw.normal(size=(M, K))


@pytest.mark.parametrize(
    "name, others, formula",
    [
        ("dot", (), lambda q, k: q @ k),
        ("scaled_dot", (), lambda q, k: q @ k / np.sqrt(K)),
        ("cosine", (), lambda q, k: q @ k / np.sqrt((q @ q) * (k @ k))),
        ("general", (SQUARE,), lambda q, k: q @ SQUARE @ k),
        ("additive", (W, U, V), lambda q, k: V @ np.tanh(W @ q + U @ k)),
    ],
)
def test_a_score_is_that_of_its_formula_for_each_key(name, others, formula):
    score = getattr(scores, name)
    expected = [formula(QUERY, key) for key in KEYS]
    np.testing.assert_allclose(score(QUERY, KEYS, *others), expected, rtol=1e-5)
    two = score(np.stack([QUERY, -QUERY]), np.stack([KEYS, KEYS]), *others)
    both = [score(QUERY, KEYS, *others), score(-QUERY, KEYS, *others)]
    np.testing.assert_allclose(two, both, rtol=1e-5)


def test_location_reads_no_key():
    np.testing.assert_allclose(scores.location(QUERY, PLACES), PLACES @ QUERY, 1e-5)


def test_the_softmax_of_scaled_dot_is_the_attention_of_encoders():
    queries = jnp.asarray(np.stack([QUERY] * M), jnp.float32)
    keys = jnp.asarray(KEYS, jnp.float32)
    mask = jnp.ones((1, M), int)
    weights = attention_weights(queries[None, :, None], keys[None, :, None], mask)
    expected = jax.nn.softmax(scores.scaled_dot(queries[0], keys))
    np.testing.assert_allclose(weights[0, 0, 0], expected, rtol=1e-5)
