"""Laws of ModernBERT's encoder; parity with transformers is elsewhere."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from bert_jax.models import MaskedLM, ModernBert, ModernBertConfig, masks
from bert_jax.models.modernbert import GLOBAL, LOCAL
from bert_jax.pretrained import config_json
from bert_jax.training import optimizers, sharding

TINY = ModernBertConfig(
    vocab_size=31,
    hidden_size=12,
    num_hidden_layers=4,
    num_attention_heads=3,
    intermediate_size=10,
    max_position_embeddings=32,
    local_attention=4,
    pad_token_id=0,
)
B, L = 2, 9


def changed(**fields):
    return dataclasses.replace(TINY, **fields)


def draw_ids(shape=(B, L), seed=0):
    return np.random.default_rng(seed).integers(5, TINY.vocab_size, shape)


def started(config, seed=1):
    """Parameters far from their initial values, so that no term is a no-op."""
    shapes = jax.eval_shape(ModernBert(config).init, jax.random.key(0), draw_ids())
    draw = np.random.default_rng(seed)
    return jax.tree.map(
        lambda x: draw.normal(x.ndim == 1, 0.3, x.shape).astype(np.float32),
        shapes["params"],
    )


def run(config, params, *args, **kwargs):
    encoder = ModernBert(config)
    return jax.jit(lambda p: encoder.apply({"params": p}, *args, **kwargs))(params)


def matrix(mask):
    return masks.visible(mask)[0, 0].astype(int).tolist()


def test_local_attention_as_a_matrix():
    assert matrix(masks.Mask(jnp.ones((1, 6), int), window=1)) == [
        [1, 1, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0],
        [0, 1, 1, 1, 0, 0],
        [0, 0, 1, 1, 1, 0],
        [0, 0, 0, 1, 1, 1],
        [0, 0, 0, 0, 1, 1],
    ]


def test_local_attention_of_a_packed_row_as_a_matrix():
    row = jnp.array([[1, 1, 1, 2, 2, 2, 0]])
    positions = jnp.array([[0, 1, 2, 0, 1, 2, 0]])
    assert matrix(masks.Mask(row, positions=positions, window=1)) == [
        [1, 1, 0, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0, 0],
        [0, 1, 1, 0, 0, 0, 0],
        [0, 0, 0, 1, 1, 0, 0],
        [0, 0, 0, 1, 1, 1, 0],
        [0, 0, 0, 0, 1, 1, 0],
        [1, 1, 0, 1, 1, 0, 0],
    ]


def reach(config, layer):
    """The pairs of tokens with a weight above 0 in a layer, as 0 and 1."""
    ids = draw_ids((1, L))
    _, seen = run(config, started(config), ids, mutable=["intermediates"])
    weights = seen["intermediates"][f"layer_{layer}"]["attention"]["weights"][0]
    return (weights[0].min(0) > 0).astype(int).tolist()


def test_every_third_layer_sees_all_and_the_others_two_to_either_side():
    everything = np.ones((L, L), int).tolist()
    near = [[int(abs(i - j) <= 2) for j in range(L)] for i in range(L)]
    kinds = [reach(TINY, i) for i in range(4)]
    assert kinds == [everything, near, near, everything]
    named = changed(layer_types=(LOCAL, GLOBAL, LOCAL, GLOBAL))
    assert [reach(named, i) for i in range(4)] == [near, everything] * 2


def test_padding_never_changes_other_tokens():
    ids, params = draw_ids(), started(TINY)
    mask = np.array([[1] * 5 + [0] * 4, [1] * 9])
    other = np.where(mask == 0, 5, ids)
    assert (other != ids).any()
    x = run(TINY, params, ids, mask)
    np.testing.assert_array_equal(
        x[mask == 1], run(TINY, params, other, mask)[mask == 1]
    )
    alone = run(TINY, params, ids[:1, :5])
    np.testing.assert_allclose(x[0, :5], alone[0], atol=2e-5)
    assert np.isfinite(x).all()


def test_a_packed_row_equals_its_sequences_alone():
    ids, params = draw_ids((1, 16)), started(TINY)
    row = jnp.array([[1] * 6 + [2] * 9 + [0]])
    positions = jnp.array([[*range(6), *range(9), 0]])
    packed = run(TINY, params, ids, row, None, positions)
    for part in (slice(0, 6), slice(6, 15)):
        alone = run(TINY, params, ids[:, part])
        np.testing.assert_allclose(packed[:, part], alone, atol=2e-5)


def test_no_gradient_crosses_the_border_of_a_packed_sequence():
    params, ids = started(TINY), jnp.arange(5, 12)[None]
    row = jnp.array([[1, 1, 1, 2, 2, 2, 0]])

    def first_sequence(table):
        tree = {**params, "embeddings": {**params["embeddings"], "word": table}}
        return (ModernBert(TINY).apply({"params": tree}, ids, row)[0, :3] ** 3).sum()

    grads = jax.jit(jax.grad(first_sequence))(params["embeddings"]["word"])
    assert (grads[8:12] == 0).all()
    assert (jnp.abs(grads[5:8]).sum(-1) > 0).all()


def test_only_distances_between_positions_count():
    ids, params = draw_ids(), started(TINY)
    positions = np.arange(L)[None].repeat(B, 0)
    here = run(TINY, params, ids, None, None, positions)
    there = run(TINY, params, ids, None, None, positions + 20)
    np.testing.assert_allclose(here, there, atol=1e-4)
    stretched = run(TINY, params, ids, None, None, positions * 2)
    assert np.abs(here - stretched).max() > 1e-2


def test_each_kind_of_layer_has_its_own_rotary_base():
    ids, params = draw_ids(), started(TINY)
    x = run(TINY, params, ids)
    for name in ("global_rope_theta", "local_rope_theta"):
        assert np.abs(run(changed(**{name: 100.0}), params, ids) - x).max() > 1e-3
    only_global = changed(global_attn_every_n_layers=1)
    x = run(only_global, params, ids)
    y = run(dataclasses.replace(only_global, local_rope_theta=1.0), params, ids)
    np.testing.assert_array_equal(x, y)


def test_hidden_states_are_those_of_embeddings_layers_and_the_final_norm():
    ids, params = draw_ids(), started(TINY)
    x, seen = run(TINY, params, ids, mutable=["intermediates"])
    states = seen["intermediates"]["hidden_states"]
    assert len(states) == TINY.num_hidden_layers + 1
    np.testing.assert_array_equal(states[-1], x)


@pytest.mark.slow
def test_rematerialization_changes_no_gradient():
    ids, params = draw_ids(), started(TINY)

    def pull_back(remat):
        config = changed(remat=remat, mlp_dropout=0.3, attention_out_dropout=0.2)
        rngs = {"dropout": jax.random.key(2)}

        def total(params):
            y = ModernBert(config).apply(
                {"params": params}, ids, deterministic=False, rngs=rngs
            )
            return (y**3).sum()

        return jax.jit(jax.grad(total))(params)

    for x, y in zip(*map(jax.tree.leaves, map(pull_back, (False, True))), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-3, rtol=1e-3)


def test_bfloat16_compute_keeps_float32_parameters_and_logits():
    ids = draw_ids()
    model = MaskedLM(ModernBert(changed(dtype="bfloat16")), use_bias=False)
    shapes = jax.eval_shape(model.init, jax.random.key(0), ids)
    assert all(x.dtype == jnp.float32 for x in jax.tree.leaves(shapes))
    assert jax.eval_shape(model.apply, shapes, ids).dtype == jnp.float32


def test_initial_output_kernels_are_smaller_in_deeper_models():
    config = ModernBertConfig(
        vocab_size=8,
        hidden_size=64,
        num_hidden_layers=8,
        num_attention_heads=4,
        intermediate_size=96,
        pad_token_id=0,
    )
    params = ModernBert(config).init(jax.random.key(0), draw_ids() % 8)["params"]
    block = params["layer_3"]
    for inner, outer in (
        (block["attention"]["query"], block["attention"]["out"]),
        (block["mlp"]["gate"], block["mlp"]["down"]),
    ):
        ratio = inner["kernel"].std() / outer["kernel"].std()
        assert abs(ratio - 4) < 0.3  # the root of twice 8 layers


def test_parameters_have_their_place_in_the_layouts_by_name():
    config = changed(hidden_size=16, intermediate_size=24, num_attention_heads=4)
    shapes = jax.eval_shape(ModernBert(config).init, jax.random.key(0), draw_ids())
    specs = sharding.layout("tensor", shapes["params"], sharding.make_mesh(4))
    mlp, attention = (specs["layer_1"][name] for name in ("mlp", "attention"))
    for name in ("up", "gate"):
        assert mlp[name]["kernel"].spec == P(None, "model")
    assert mlp["down"]["kernel"].spec == P("model", None)
    assert attention["query"]["kernel"].spec == P(None, "model")
    assert attention["out"]["kernel"].spec == P("model", None)


def test_layers_learn_more_slowly_the_deeper_they_lie():
    params = {"encoder": started(TINY)}
    scales = optimizers.rate_factors(params, (), 0.5)["encoder"]
    assert scales["embeddings"]["word"] == 0.5**6
    assert scales["layer_0"]["mlp"]["gate"]["kernel"] == 0.5**5
    assert scales["layer_3"]["mlp_norm"]["scale"] == 0.5**2
    assert scales["final_norm"]["scale"] == 1


@pytest.mark.parametrize(
    "change, message",
    [
        ({"hidden_size": 9}, "hidden_size=9 gives num_attention_heads=3 an odd number"),
        ({"hidden_size": 13}, "hidden_size=13 is not a multiple"),
        ({"hidden_activation": "gleu"}, "hidden_activation='gleu' is unknown"),
        ({"local_attention": 0}, "local_attention=0; it must be at least 1"),
        ({"global_attn_every_n_layers": 0}, "global_attn_every_n_layers=0"),
        ({"layer_types": (LOCAL,)}, "layer_types names 1 layers, but num_hidden_layer"),
        ({"layer_types": (LOCAL, "x", LOCAL, LOCAL)}, "layer_types has 'x'; choose"),
        ({"global_rope_theta": 0.0}, "global_rope_theta=0.0 is not a base of rotary"),
        ({"mlp_dropout": 1.0}, "mlp_dropout=1.0 is not a probability below 1"),
    ],
)
def test_a_wrong_config_names_the_field(change, message):
    with pytest.raises(ValueError, match=message):
        changed(**change).build()


def test_a_row_longer_than_the_positions_is_refused():
    with pytest.raises(ValueError, match="sequence length 33 exceeds the 32 positions"):
        ModernBert(TINY).init(jax.random.key(0), jnp.ones((1, 33), jnp.int32))


def read(**published):
    family = config_json.find_family({"model_type": "modernbert"})
    settings = {"vocab_size": 60_000} | published
    return config_json.encoder_config(family.normalize(settings), family)


def test_both_formats_of_a_config_are_read():
    old = {"global_attn_every_n_layers": 2, "global_rope_theta": 5.0}
    new = {
        "layer_types": [LOCAL if i % 2 else GLOBAL for i in range(22)],
        "rope_parameters": {GLOBAL: {"rope_type": "default", "rope_theta": 5.0}},
    }
    assert read(**old) == read(**new) == read(**old, **new)
    assert read(**old).windows[:3] == (None, 64, None)
    irregular = [GLOBAL, GLOBAL, *[LOCAL] * 20]
    assert read(layer_types=irregular).layer_types == tuple(irregular)


def test_scaled_rotary_angles_are_refused():
    table = {"rope_type": "yarn", "rope_theta": 5.0, "factor": 2.0}
    with pytest.raises(ValueError, match="rope_type='yarn', which is not supported"):
        read(rope_parameters={GLOBAL: table})
