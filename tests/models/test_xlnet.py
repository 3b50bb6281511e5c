"""Laws of XLNet's encoder: padding, packing, orders, memory, and its goldens."""

import dataclasses
import functools
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file
from test_pretrained_goldens import below, loaded

from bert_jax.models import PermutationLM, TokenClassifier, XLNet, XLNetConfig
from bert_jax.models.relative_attention import before, by_key
from bert_jax.models.xlnet import next_memory

GOLDENS = pathlib.Path(__file__).parents[1] / "goldens"
TINY = XLNetConfig(
    vocab_size=31, d_model=12, n_layer=3, n_head=3, d_inner=20, dropout=0.0
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


ENCODER = XLNet(TINY)
PARAMS = started(ENCODER, draw_ids())


@functools.partial(
    jax.jit, static_argnames=("encoder", "method", "mutable", "deterministic")
)
def run(params, *args, encoder=ENCODER, **kwargs):
    return encoder.apply({"params": params}, *args, **kwargs)


def streams(params, *args, **kwargs):
    return run(params, *args, method="two_streams", **kwargs)


def test_parameter_paths_are_the_public_ones():
    paths = {
        jax.tree_util.keystr(path, simple=True, separator="/")
        for path, _ in jax.tree_util.tree_leaves_with_path(PARAMS)
    }
    norms = {f"{name}/{leaf}" for name in ("attention_norm", "mlp_norm")
             for leaf in ("scale", "bias")}  # fmt: skip
    layer = norms | {
        *(
            f"mlp/{name}/{leaf}"
            for name in ("up", "down")
            for leaf in ("kernel", "bias")
        ),
        *(
            f"attention/{name}/kernel"
            for name in ("query", "key", "value", "distance", "out")
        ),
        *(f"attention/{name}_bias" for name in ("content", "distance", "segment")),
        "attention/segment",
    }
    expected = {f"layer_{i}/{name}" for i in range(3) for name in layer}
    assert paths == expected | {"embeddings/word", "embeddings/mask"}


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_never_changes_other_tokens(side):
    ids, mask = draw_ids(), np.ones((B, L), int)
    padding = slice(2) if side == "left" else slice(5, L)
    real = slice(2, L) if side == "left" else slice(5)
    mask[0, padding] = 0
    x = run(PARAMS, ids, mask)
    y = run(PARAMS, np.where(mask == 0, 5, ids), mask)
    z = run(PARAMS, ids[:1, real])
    np.testing.assert_array_equal(x[mask == 1], y[mask == 1])
    np.testing.assert_allclose(x[0, real], z[0], atol=2e-6)
    assert np.isfinite(x).all()


PACKED = jnp.array([[1, 1, 1, 2, 2, 2, 2, 3, 0]])


def test_a_packed_row_equals_its_sequences_alone_in_both_streams():
    ids, kinds = draw_ids(shape=(1, 9)), jnp.array([[0, 0, 1, 0, 0, 1, 2, 0, 0]])
    hidden = np.random.default_rng(0).integers(0, 2, (1, 9, 9))
    hidden[:, :, 3] = 0  # who sees nothing looks at all of the row
    content, query = streams(
        PARAMS, ids, PACKED, kinds, perm_mask=hidden, positions=jnp.array([[4, 1, 6]])
    )
    alone, queried = streams(
        PARAMS,
        ids[:, 3:7],
        None,
        kinds[:, 3:7],
        perm_mask=hidden[:, 3:7, 3:7],
        positions=jnp.array([[1, 3]]),
    )
    np.testing.assert_allclose(content[:, 3:7], alone, atol=2e-6)
    np.testing.assert_allclose(query[:, ::2], queried, atol=2e-6)


@pytest.mark.slow
def test_no_gradient_crosses_the_border_of_a_packed_sequence():
    ids = jnp.arange(5, 14)[None]

    def second_sequence(table):
        tree = {**PARAMS, "embeddings": {**PARAMS["embeddings"], "word": table}}
        at = {"positions": jnp.array([[4]])}
        return sum((x[:, 3:7] ** 3).sum() for x in streams(tree, ids, PACKED, **at))

    grads = jax.jit(jax.grad(second_sequence))(PARAMS["embeddings"]["word"])
    assert (grads[5:8] == 0).all() and (grads[12:] == 0).all()
    assert (jnp.abs(grads[8:12]).sum(-1) > 0).all()


def test_a_query_depends_neither_on_its_token_nor_on_hidden_ones():
    ids = draw_ids(shape=(1, L))
    order = jnp.array([3, 0, 6, 1, 5, 2, 4])
    hidden = (order[:, None] <= order[None])[None]
    place = {"positions": jnp.arange(L)[None], "perm_mask": hidden}
    _, before_it = streams(PARAMS, ids, **place)
    for j in range(L):
        other = ids.copy()
        other[0, j] = 5 + (ids[0, j] - 4) % 26
        _, after = streams(PARAMS, other, **place)
        changed = jnp.abs(after - before_it).max((0, 2)) > 1e-6
        # Who sees nothing looks at everything, as in the published models.
        expected = np.asarray(order > order[j]) | np.asarray(order == 0)
        np.testing.assert_array_equal(changed, expected)


def test_the_content_stream_is_the_same_with_and_without_queries():
    ids, hidden = draw_ids(), np.random.default_rng(0).integers(0, 2, (B, L, L))
    content, _ = streams(
        PARAMS, ids, perm_mask=hidden, positions=jnp.zeros((B, 2), int)
    )
    np.testing.assert_allclose(content, run(PARAMS, ids, perm_mask=hidden), atol=2e-6)


def test_queries_at_some_positions_equal_those_at_all_positions():
    ids, hidden = draw_ids(), np.random.default_rng(0).integers(0, 2, (B, L, L))
    everywhere = jnp.tile(jnp.arange(L), (B, 1))
    _, query = streams(PARAMS, ids, perm_mask=hidden, positions=everywhere)
    positions = jnp.array([[6, 0, 3], [2, 2, 5]])
    _, some = streams(PARAMS, ids, perm_mask=hidden, positions=positions)
    expected = jnp.take_along_axis(query, positions[..., None], axis=1)
    np.testing.assert_allclose(some, expected, atol=2e-6)


def test_scores_by_distance_are_shifted_to_their_keys():
    H, M = 2, 9
    scores = np.random.default_rng(0).normal(size=(B, H, L, L + M)).astype(np.float32)
    expected = np.zeros((B, H, L, M), np.float32)
    for i in range(L):
        for j in range(M):
            expected[:, :, i, j] = scores[:, :, i, L - i + j]
    np.testing.assert_array_equal(by_key(scores, M, None), expected)
    places = jnp.tile(jnp.arange(L), (B, 1))
    np.testing.assert_array_equal(by_key(scores, M, places), expected)


def test_the_masks_of_transformer_xl_as_zeros_and_ones():
    # Two places of memory, three of the row.
    np.testing.assert_array_equal(
        before(3, 2, same_length=False).astype(int),
        [[1, 1, 1, 0, 0], [1, 1, 1, 1, 0], [1, 1, 1, 1, 1]],
    )
    np.testing.assert_array_equal(
        before(3, 2, same_length=True).astype(int),
        [[1, 1, 1, 0, 0], [0, 1, 1, 1, 0], [0, 0, 1, 1, 1]],
    )


def states(encoder, *args, **kwargs):
    x, seen = run(PARAMS, *args, encoder=encoder, mutable="intermediates", **kwargs)
    return x, seen["intermediates"]["hidden_states"]


def test_a_row_in_parts_with_memory_equals_the_whole_row():
    config = dataclasses.replace(TINY, attn_type="uni")
    encoder, ids = XLNet(config), draw_ids(shape=(B, 12))
    kinds = jnp.zeros((B, 12), int)
    whole = run(PARAMS, ids, None, kinds, encoder=encoder)
    memory, parts = None, []
    for part in (slice(0, 5), slice(5, 9), slice(9, 12)):
        x, results = states(encoder, ids[:, part], memory=memory)
        parts.append(x)
        memory = next_memory(config, results, memory)
    np.testing.assert_allclose(jnp.concatenate(parts, 1), whole, atol=1e-5)
    assert [x.shape for x in memory] == [(B, 12, 12)] * 3


def test_memory_has_the_length_of_the_config_and_no_gradient():
    config = dataclasses.replace(TINY, mem_len=6, reuse_len=4)
    _, results = states(ENCODER, draw_ids())
    memory = next_memory(config, results)
    assert [x.shape for x in memory] == [(B, 4, 12)] * 3
    np.testing.assert_array_equal(memory[0], results[0][:, :4])
    both = next_memory(config, results, memory)
    np.testing.assert_array_equal(both[1][:, -4:], results[1][:, :4])
    np.testing.assert_array_equal(both[1][:, :2], memory[1][:, 2:])

    def total(params):
        _, seen = ENCODER.apply({"params": params}, draw_ids(), mutable="intermediates")
        real = next_memory(config, seen["intermediates"]["hidden_states"])
        return sum(x.sum() for x in real)

    assert all(
        (x == 0).all() for x in jax.tree.leaves(jax.jit(jax.grad(total))(PARAMS))
    )


def test_distances_beyond_the_clamp_count_as_the_clamp():
    # Beyond one step all is equally far: then tokens there may change places.
    config = dataclasses.replace(TINY, clamp_len=1, n_layer=1)
    ids = draw_ids(shape=(1, L))
    swapped = ids[:, [0, 1, 2, 3, 6, 5, 4]]
    for encoder, same in ((XLNet(config), True), (XLNet(TINY), False)):
        x, y = (run(PARAMS, some, encoder=encoder)[0, 0] for some in (ids, swapped))
        assert (jnp.abs(x - y).max() < 1e-5) == same


def test_a_segment_counts_only_as_the_same_or_another():
    ids = draw_ids()
    x = run(PARAMS, ids, None, jnp.array([[0, 0, 0, 1, 1, 1, 2]] * B))
    y = run(PARAMS, ids, None, jnp.array([[3, 3, 3, 0, 0, 0, 1]] * B))
    np.testing.assert_array_equal(x, y)
    z = run(PARAMS, ids, None, jnp.array([[0, 0, 0, 1, 1, 1, 1]] * B))
    assert jnp.abs(x - z).max() > 1e-3


def test_intermediates_hold_every_layer_and_its_attention():
    ids = draw_ids()
    x, seen = run(PARAMS, ids, mutable="intermediates")
    results = seen["intermediates"]["hidden_states"]
    weights = seen["intermediates"]["layer_1"]["attention"]["weights"][0]
    assert len(results) == TINY.n_layer + 1
    np.testing.assert_array_equal(results[-1], x)
    np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-5)
    assert weights.shape == (B, TINY.n_head, L, L)


@pytest.mark.slow
def test_bfloat16_compute_keeps_float32_parameters_and_logits():
    model = PermutationLM(XLNet(dataclasses.replace(TINY, dtype="bfloat16")))
    ids, at = draw_ids(), {"positions": jnp.array([[1, 4], [0, 6]])}
    params = started(model, ids)
    low = model.apply({"params": params}, ids, **at)
    high = PermutationLM(ENCODER).apply({"params": params}, ids, **at)
    assert low.dtype == jnp.float32
    assert all(x.dtype == jnp.float32 for x in jax.tree.leaves(params))
    # bfloat16 has 8 bits: about 0.4 % a rounding, some tens of roundings deep.
    assert jnp.abs(low - high).max() < 0.06 * jnp.abs(high).max()


@pytest.mark.slow
def test_rematerialization_changes_no_gradient():
    def gradient(remat):
        config = dataclasses.replace(TINY, n_layer=2, remat=remat, dropout=0.1)
        encoder = XLNet(config)

        def total(params):
            results = streams(
                params,
                draw_ids(),
                encoder=encoder,
                positions=jnp.array([[1, 4], [0, 6]]),
                deterministic=False,
                rngs={"dropout": jax.random.key(2)},
            )
            return sum((x**3).sum() for x in results)

        return jax.jit(jax.grad(total))(PARAMS)

    pairs = zip(*map(jax.tree.leaves, map(gradient, (False, True))), strict=True)
    for x, y in pairs:
        np.testing.assert_allclose(x, y, atol=1e-3, rtol=1e-4)


def test_dropout_is_a_function_of_its_key():
    encoder = XLNet(dataclasses.replace(TINY, dropout=0.3))

    def noisy(seed):
        rngs = {"dropout": jax.random.key(seed)}
        return run(PARAMS, draw_ids(), encoder=encoder, deterministic=False, rngs=rngs)

    np.testing.assert_array_equal(noisy(0), noisy(0))
    assert jnp.abs(noisy(0) - noisy(1)).max() > 1e-2


def test_words_at_positions_are_hidden_from_all_unless_an_order_is_given():
    model, ids = PermutationLM(ENCODER), draw_ids()
    params = started(model, ids)
    positions = jnp.array([[1, 4], [0, 0]])
    other = ids.copy()
    other[0, [1, 4]] = 5 + (ids[0, [1, 4]] - 4) % 26
    x = model.apply({"params": params}, ids, positions=positions)
    y = model.apply({"params": params}, other, positions=positions)
    np.testing.assert_array_equal(x[0], y[0])
    none = model.apply(
        {"params": params}, other, positions=positions, perm_mask=jnp.zeros((B, L, L))
    )
    assert x.shape == (B, 2, TINY.vocab_size)
    assert jnp.abs(none[0] - y[0]).max() > 1e-3


def test_other_heads_take_the_content_stream():
    module, ids = TokenClassifier(ENCODER, 3), draw_ids()
    params = started(module, ids)
    assert module.apply({"params": params}, ids).shape == (B, L, 3)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"n_head": 5}, "d_model=12 is not an even multiple of n_head=5"),
        ({"ff_activation": "gleu"}, "ff_activation='gleu' is unknown"),
        ({"attn_type": "both"}, "attn_type='both' is unknown"),
        ({"dropout": 1.0}, "dropout=1.0 is not a probability"),
        ({"n_layer": 0}, "n_layer=0"),
        ({"mem_len": -3}, "mem_len=-3"),
    ],
)
def test_a_wrong_config_names_the_field(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(TINY, **change).build()


def test_streams_and_memory_equal_those_of_transformers():
    golden = load_file(GOLDENS / "xlnet_streams.safetensors")
    model, memory = loaded("xlnet", "XLNetLMHeadModel"), None
    encoder, params = model.encoder, model.params["encoder"]
    for number in (1, 2):
        inputs = below(golden, f"{number}/in/")
        expected = below(golden, f"{number}/out/")
        (content, query), seen = streams(
            params, **inputs, encoder=encoder, memory=memory, mutable="intermediates"
        )
        logits = query @ params["embeddings"]["word"].T
        logits += model.params["mlm"]["bias"][None, None]
        np.testing.assert_allclose(logits, expected["logits"], atol=1e-4)
        np.testing.assert_allclose(content, expected["content"], atol=1e-4)
        results = seen["intermediates"]["hidden_states"]
        memory = next_memory(encoder.config, results, memory)
        for i, x in enumerate(memory):
            np.testing.assert_allclose(x, expected[f"memory_{i}"], atol=1e-4)
    head = model.head.apply({"params": model.params}, **below(golden, "1/in/"))
    np.testing.assert_allclose(head, golden["1/out/logits"], atol=1e-4)
