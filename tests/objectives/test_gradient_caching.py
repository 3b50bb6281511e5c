"""Laws of gradient caching: chunks change memory, and no number."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.models import Bert, BertConfig, SentenceEncoder, XLNetConfig, ops
from bert_jax.objectives.gradient_caching import encode_in_chunks

DROPPING = BertConfig(
    vocab_size=31,
    hidden_size=12,
    num_hidden_layers=1,
    num_attention_heads=3,
    intermediate_size=20,
    max_position_embeddings=20,
    hidden_dropout_prob=0.3,
    attention_probs_dropout_prob=0.3,
    initializer_range=0.2,
)
XLNET = XLNetConfig(31, 12, n_layer=1, n_head=3, dropout=0.3)
ENCODERS = {"bert": Bert(DROPPING), "xlnet": XLNET.build()}
N, L = 12, 5


def gradient(encoder, chunk_size):
    """The gradient of a sum over all pairs of vectors, which no chunk has alone."""
    head = SentenceEncoder(encoder, dense=((7, "Tanh"),))
    ids = jax.random.randint(jax.random.key(1), (N, L), 5, 31)
    params = head.init(jax.random.key(0), ids)["params"]

    def loss(params):
        def encode(ids, key):
            rngs = {"dropout": key}
            return head.apply({"params": params}, ids, deterministic=False, rngs=rngs)

        x = encode_in_chunks(encode, ids, jax.random.key(2), chunk_size)
        return jax.nn.logsumexp(5 * x @ x.T, axis=1).mean()

    return jax.jit(jax.value_and_grad(loss))(params)


@pytest.mark.parametrize(
    "kind", ["bert", pytest.param("xlnet", marks=pytest.mark.slow)]
)
def test_chunks_give_the_gradient_of_the_whole_batch_with_dropout(kind):
    value, grads = gradient(ENCODERS[kind], 0)
    largest = max(jnp.abs(x).max() for x in jax.tree.leaves(grads))
    for size in (1, 4) if kind == "bert" else (3,):
        other_value, others = gradient(ENCODERS[kind], size)
        np.testing.assert_allclose(other_value, value, rtol=1e-6)
        for x, y in zip(*map(jax.tree.leaves, (grads, others)), strict=True):
            np.testing.assert_allclose(x, y, atol=1e-6 * largest, rtol=0)


def test_a_key_with_rows_draws_what_the_whole_batch_draws():
    key = jax.random.fold_in(jax.random.key(5), 3)
    whole = ops.hash_bits(key, (12, 3, 4))
    for start in range(3):
        part = ops.with_rows(jax.random.key(5), start, 3)
        part = jax.random.fold_in(part, 3)
        np.testing.assert_array_equal(ops.hash_bits(part, (4, 3, 4)), whole[start::3])
        first, second = ops.counters(part, (4, 3), 4)
        np.testing.assert_array_equal(
            ops.mix(first, second), ops.hash_bits(key, (12, 3, 4))[start::3, :, 0]
        )


def test_backward_memory_is_that_of_a_chunk():
    def temporary_bytes(chunk_size):
        head = SentenceEncoder(ENCODERS["bert"])
        ids = jnp.zeros((96, 16), jnp.int32)
        params = jax.eval_shape(head.init, jax.random.key(0), ids)["params"]

        def loss(params, ids):
            def encode(ids, key):
                return head.apply({"params": params}, ids)

            return encode_in_chunks(encode, ids, None, chunk_size).sum()

        compiled = jax.jit(jax.grad(loss)).lower(params, ids).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    assert temporary_bytes(8) < temporary_bytes(0) / 4
