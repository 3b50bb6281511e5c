"""Laws of the encoder and the pre-training head."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.models import SIZES, Bert, BertConfig, Pretraining, sized

TINY = BertConfig(
    vocab_size=31,
    hidden_size=12,
    num_hidden_layers=3,
    num_attention_heads=3,
    intermediate_size=20,
    max_position_embeddings=16,
)
B, L = 2, 7


def draw_ids(seed=0, shape=(B, L)):
    return np.random.default_rng(seed).integers(5, TINY.vocab_size, shape)


def started(model, *args):
    """Parameters far from their initial values, so that no term is a no-op."""
    shapes = jax.eval_shape(model.init, jax.random.key(0), *args)["params"]
    draw = np.random.default_rng(1)
    return jax.tree.map(
        lambda x: draw.normal(x.ndim == 1, 0.3, x.shape).astype(np.float32), shapes
    )


def run(model, params, *args, **kwargs):
    return jax.jit(lambda p: model.apply({"params": p}, *args, **kwargs))(params)


def count(model):
    ids = jax.ShapeDtypeStruct((1, 8), jnp.int32)
    shapes = jax.eval_shape(model.init, jax.random.key(0), ids)["params"]
    return {k: sum(x.size for x in jax.tree.leaves(v)) for k, v in shapes.items()}


# google-research/bert's models: encoder with pooler, and with both heads.
PUBLISHED = [
    (sized(*SIZES["tiny"]), 4_385_920, 4_433_468),
    (sized(*SIZES["mini"]), 11_170_560, 11_267_900),
    (sized(*SIZES["small"]), 28_763_648, 29_058_876),
    (sized(*SIZES["medium"]), 41_373_184, 41_668_412),
    (sized(*SIZES["base"]), 109_482_240, 110_106_428),
    (sized(*SIZES["large"]), 335_141_888, 336_226_108),
    (sized(*SIZES["base"], vocab_size=28996), 108_310_272, 108_932_934),
    (sized(*SIZES["large"], vocab_size=28996), 333_579_264, 334_661_958),
    (sized(*SIZES["base"], vocab_size=119547), 177_853_440, 178_566_653),
    (sized(*SIZES["base"], vocab_size=21128), 102_267_648, 102_882_442),
    (sized(2, 256), 9_591_040, 9_688_380),
    (sized(6, 128), 5_179_008, 5_226_556),
    (sized(6, 768), 66_955_008, 67_579_196),
    (sized(8, 256), 14_329_600, 14_426_940),
    (sized(10, 512), 47_677_952, 47_973_180),
    (sized(12, 128), 6_368_640, 6_416_188),
]


@pytest.mark.parametrize("config, encoder_and_pooler, total", PUBLISHED)
def test_parameter_counts_are_the_published_ones(config, encoder_and_pooler, total):
    counts = count(Pretraining(config.build()))
    assert counts["encoder"] + counts["pooler"] == encoder_and_pooler
    assert sum(counts.values()) == total


def test_parameter_paths_are_the_public_ones():
    shapes = jax.eval_shape(Bert(TINY).init, jax.random.key(0), draw_ids())["params"]
    paths = {
        jax.tree_util.keystr(path, simple=True, separator="/")
        for path, _ in jax.tree_util.tree_leaves_with_path(shapes)
    }
    assert {
        "embeddings/word",
        "embeddings/norm/scale",
        "layer_0/attention/query/kernel",
        "layer_2/attention/out/bias",
        "layer_1/attention_norm/bias",
        "layer_1/mlp/up/kernel",
        "layer_1/mlp_norm/scale",
    } <= paths


def test_padding_never_changes_other_tokens():
    encoder, ids = Bert(TINY), draw_ids()
    params = started(encoder, ids)
    mask = jnp.array([[1, 1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1, 1]])
    other = np.where(mask == 0, 5, ids)
    assert (other != ids).any()
    x = run(encoder, params, ids, mask)
    y = run(encoder, params, other, mask)
    z = run(encoder, params, ids[:1, :5])
    np.testing.assert_array_equal(x[mask == 1], y[mask == 1])
    np.testing.assert_allclose(x[0, :5], z[0], atol=2e-6)
    assert np.isfinite(x).all()


def test_a_packed_row_equals_its_sequences_alone():
    encoder, ids = Bert(TINY), draw_ids(shape=(1, 9))
    params = started(encoder, ids)
    packed = run(
        encoder,
        params,
        ids,
        jnp.array([[1, 1, 1, 2, 2, 2, 2, 3, 0]]),
        jnp.array([[0, 0, 1, 0, 0, 1, 1, 0, 0]]),
        jnp.array([[0, 1, 2, 0, 1, 2, 3, 0, 0]]),
    )
    kinds = jnp.array([[0, 0, 1, 1]])
    alone = run(encoder, params, ids[:, 3:7], None, kinds)
    np.testing.assert_allclose(packed[:, 3:7], alone, atol=2e-6)


def test_no_gradient_crosses_the_border_of_a_packed_sequence():
    encoder, ids = Bert(TINY), draw_ids(shape=(1, L))
    params = started(encoder, ids)
    mask = jnp.array([[1, 1, 1, 2, 2, 2, 0]])

    def first_sequence(table):
        tree = {**params, "embeddings": {**params["embeddings"], "word": table}}
        return (encoder.apply({"params": tree}, ids, mask)[0, :3] ** 3).sum()

    ids = jnp.arange(5, 5 + L)[None]
    grads = jax.jit(jax.grad(first_sequence))(params["embeddings"]["word"])
    assert (grads[8:12] == 0).all()
    assert (jnp.abs(grads[5:8]).sum(-1) > 0).all()


def test_predictions_at_positions_equal_those_of_all_positions():
    model, ids = Pretraining(Bert(TINY)), draw_ids()
    params = started(model, ids)
    positions = jnp.array([[6, 0, 3], [2, 2, 5]])
    all_logits, pair = run(model, params, ids)
    logits, pairs = run(
        model, params, ids, positions=positions, cls_positions=positions[:, 1:]
    )
    assert all_logits.shape == (B, L, TINY.vocab_size) and pair.shape == (B, 2)
    assert pairs.shape == (B, 2, 2)
    expected = jnp.take_along_axis(all_logits, positions[..., None], axis=1)
    np.testing.assert_allclose(logits, expected, atol=1e-5)
    np.testing.assert_allclose(pairs[0, 0], pair[0], atol=1e-6)


def test_intermediates_hold_every_layer_and_its_attention():
    encoder, ids = Bert(TINY), draw_ids()
    params = started(encoder, ids)
    x, seen = run(encoder, params, ids, mutable=["intermediates"])
    states = seen["intermediates"]["hidden_states"]
    weights = seen["intermediates"]["layer_1"]["attention"]["weights"][0]
    assert len(states) == TINY.num_hidden_layers + 1
    np.testing.assert_array_equal(states[-1], x)
    np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-5)
    assert weights.shape == (B, TINY.num_attention_heads, L, L)


def test_shared_layers_hold_one_set_of_weights_a_group():
    config = BertConfig(**{**vars(TINY), "num_hidden_groups": 1, "embedding_size": 5})
    params = started(Bert(config), draw_ids())
    assert {k for k in params if k.startswith("layer")} == {"layer_0"}
    assert params["embeddings"]["word"].shape == (TINY.vocab_size, 5)
    assert run(Bert(config), params, draw_ids()).shape == (B, L, 12)


def test_bfloat16_compute_keeps_float32_parameters_and_logits():
    config = BertConfig(**{**vars(TINY), "dtype": "bfloat16"})
    model, ids = Pretraining(Bert(config)), draw_ids()
    params = started(model, ids)
    assert all(x.dtype == jnp.float32 for x in jax.tree.leaves(params))
    low, _ = run(model, params, ids)
    high, _ = run(Pretraining(Bert(TINY)), params, ids)
    assert low.dtype == jnp.float32
    # bfloat16 has 8 bits: about 0.4 % a rounding, some tens of roundings deep.
    assert jnp.abs(low - high).max() < 0.05 * jnp.abs(high).max()


def test_a_row_longer_than_the_position_table_is_refused():
    with pytest.raises(ValueError, match="sequence length 17 exceeds the 16 positions"):
        Bert(TINY).init(jax.random.key(0), jnp.ones((1, 17), jnp.int32))


@pytest.mark.parametrize(
    "change, message",
    [
        ({"num_attention_heads": 5}, "hidden_size=12 is not a multiple"),
        ({"hidden_act": "gleu"}, "hidden_act='gleu' is unknown"),
        ({"dtype": "float64"}, "dtype='float64' is unknown"),
        ({"hidden_dropout_prob": 1.0}, "hidden_dropout_prob=1.0 is not a probability"),
        ({"num_hidden_layers": 0}, "num_hidden_layers=0"),
    ],
)
def test_a_wrong_config_names_the_field(change, message):
    with pytest.raises(ValueError, match=message):
        BertConfig(**{**vars(TINY), **change}).build()


def test_rematerialization_changes_no_gradient_and_stores_less():
    ids = jax.random.randint(jax.random.key(1), (2, 9), 0, TINY.vocab_size)

    def pull_back(remat):
        model = Bert(dataclasses.replace(TINY, remat=remat, num_hidden_layers=2))
        params = jax.jit(model.init)(jax.random.key(0), ids)["params"]

        def total(params):
            rngs = {"dropout": jax.random.key(2)}
            y = model.apply({"params": params}, ids, deterministic=False, rngs=rngs)
            return (y**3).sum()

        residuals = jax.eval_shape(lambda p: jax.vjp(total, p)[1], params)
        return jax.jit(jax.grad(total))(params), sum(
            x.size for x in jax.tree.leaves(residuals)
        )

    (plain, all_kept), (again, less_kept) = pull_back(False), pull_back(True)
    assert jax.tree.structure(plain) == jax.tree.structure(again)
    for x, y in zip(jax.tree.leaves(plain), jax.tree.leaves(again), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-5, rtol=1e-5)
    assert less_kept < all_kept / 2
