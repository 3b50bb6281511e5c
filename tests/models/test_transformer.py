"""Laws of the original Transformer: its decoder's masks, its sizes, embeddings."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.models import MaskedLM, Stack, Transformer, TransformerConfig

TINY = TransformerConfig(
    vocab_size=17,
    hidden_size=12,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=20,
    max_position_embeddings=16,
    hidden_dropout_prob=0.0,
)


def draw_ids(*shape, seed=0):
    return np.random.default_rng(seed).integers(5, TINY.vocab_size, shape)


def started(module, *inputs, seed=1):
    """Parameters far from their initial values, so that no term is a no-op."""
    shapes = jax.eval_shape(module.init, jax.random.key(0), *inputs)["params"]
    draw = np.random.default_rng(seed)
    return jax.tree.map(
        lambda x: draw.normal(x.ndim == 1, 0.3, x.shape).astype(np.float32), shapes
    )


def run(module, params, *inputs, **named):
    return jax.jit(lambda p: module.apply({"params": p}, *inputs, **named))(params)


def test_a_decoder_never_looks_ahead_and_an_encoder_does():
    ids, later = draw_ids(1, 7), draw_ids(1, 7, seed=3)
    later[:, :4] = ids[:, :4]
    assert (later[:, 4:] != ids[:, 4:]).any()
    for causal in (True, False):
        stack = Stack(TINY, causal)
        params = started(stack, ids)
        x, y = run(stack, params, ids), run(stack, params, later)
        assert np.array_equal(x[:, :4], y[:, :4]) == causal
        assert (np.abs(x[:, 4:] - y[:, 4:]) > 1e-3).any()


def test_a_translation_depends_on_the_whole_text_and_on_earlier_tokens():
    model, text, other = Transformer(TINY), draw_ids(1, 6), draw_ids(1, 5, seed=2)
    params = started(model, text, other)
    scores = run(model, params, text, other)
    assert scores.shape == (1, 5, TINY.vocab_size) and scores.dtype == jnp.float32
    changed = text.copy()
    changed[0, 5] = 5 + (text[0, 5] - 4) % 12
    assert (np.abs(run(model, params, changed, other) - scores).max(-1) > 1e-3).all()
    longer = np.concatenate([other, [[6, 7]]], axis=1)
    again = run(model, params, text, longer)
    np.testing.assert_allclose(again[:, :5], scores, atol=1e-4)


def test_padding_of_the_text_changes_no_translation():
    model, text, other = Transformer(TINY), draw_ids(1, 6), draw_ids(1, 5, seed=2)
    params = started(model, text, other)
    padded = np.concatenate([text, [[0, 0, 0]]], axis=1)
    mask = (padded > 0).astype(np.int32)
    np.testing.assert_allclose(
        run(model, params, padded, other, mask),
        run(model, params, text, other),
        atol=1e-4,
    )


def test_heads_fit_the_encoder_of_a_translator():
    ids = draw_ids(2, 7)
    model = MaskedLM(Stack(TINY))
    params = started(model, ids)
    assert run(model, params, ids).shape == (2, 7, TINY.vocab_size)
    assert {"embeddings", "layer_0", "layer_1"} == params["encoder"].keys()


def test_encoder_decoder_and_logits_share_one_embedding():
    params = started(Transformer(TINY), draw_ids(1, 3), draw_ids(1, 2))
    assert params.keys() == {"embeddings", "encoder", "decoder"}
    assert params["encoder"].keys() == {"layer_0", "layer_1"}
    assert "cross_attention" in params["decoder"]["layer_1"]
    assert "cross_attention" not in params["encoder"]["layer_1"]


# Table 3 says 65 M and 213 M; by hand, from sections 3.1 to 3.4.
@pytest.mark.parametrize("width, inner, count", [(512, 2048, 65), (1024, 4096, 213)])
def test_published_sizes_have_the_published_parameter_counts(width, inner, count):
    config = TransformerConfig(
        hidden_size=width, intermediate_size=inner, num_attention_heads=width // 64
    )
    ids = jax.ShapeDtypeStruct((1, 4), jnp.int32)
    shapes = jax.eval_shape(config.build().init, jax.random.key(0), ids, ids)
    total = sum(x.size for x in jax.tree.leaves(shapes))
    D, F = width, inner
    attention, mlp, norm = 4 * (D + 1) * D, (D + 1) * F + (F + 1) * D, 2 * D
    encoder, decoder = attention + mlp + 2 * norm, 2 * attention + mlp + 3 * norm
    assert total == 37000 * D + 6 * (encoder + decoder)
    assert abs(total / 1e6 - count) < 0.03 * count
