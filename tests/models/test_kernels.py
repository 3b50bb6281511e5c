"""Laws of the attention kernels: they equal plain attention."""

import functools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from bert_jax.models import Bert, BertConfig, layers, masks
from bert_jax.models.kernels import select, tpu
from bert_jax.training import sharding
from bert_jax.training.config import TrainConfig
from bert_jax.training.program import encoder_for

INTERPRETED = {
    name: select.KERNELS[name]._replace(
        load=lambda attend=attend: functools.partial(attend, interpret=True),
        max_length=0,
    )
    for name, attend in (
        ("splash", tpu.load_splash()),
        ("one_tile", tpu.dropout_attention),
    )
}
# Rows of 128: two sequences and a full rest, one after padding, one sequence, none.
SHAPE = (4, 128)
MASK = np.zeros(SHAPE, np.int32)
MASK[0, :50], MASK[0, 50:51], MASK[0, 51:] = 3, 1, 2
MASK[1, 40:121] = 1
MASK[2] = 1
REAL = MASK > 0


@pytest.fixture
def interpreted(monkeypatch):
    """Kernels for TPUs, computed by the CPU."""
    for name, kernel in INTERPRETED.items():
        monkeypatch.setitem(select.KERNELS, name, kernel)


def draw(heads, size, dtype):
    """Query, key, value, and the gradient of the output."""
    keys = jax.random.split(jax.random.key(0), 4)
    return [jax.random.normal(k, (*SHAPE, heads, size)).astype(dtype) for k in keys]


def pulled_back(kernel, query, key, value, gradient, **dropout):
    """The output, and the gradients of query, key and value, in float32."""
    how = {"mask": jnp.array(MASK), "kernel": kernel, **dropout}
    attend = functools.partial(layers.attend, **how)
    y, back = jax.vjp(attend, query, key, value)
    # Nothing reads what padding gives.
    wanted = jnp.where(REAL[:, :, None, None], gradient, 0)
    return [np.asarray(x.astype(jnp.float32)) for x in (y, *back(wanted))]


@pytest.mark.parametrize("heads, size", [(2, 64), (3, 32)])
@pytest.mark.parametrize("kernel", INTERPRETED)
def test_a_kernel_equals_the_plain_path_on_packed_and_padded_rows(
    interpreted, kernel, heads, size
):
    drawn = draw(heads, size, "float32")
    got, expected = pulled_back(kernel, *drawn), pulled_back("plain", *drawn)
    for ours, plain in zip(got, expected, strict=True):
        np.testing.assert_allclose(ours[REAL], plain[REAL], atol=2e-6)


def test_one_tile_drops_the_weights_that_the_plain_path_drops(interpreted):
    drawn = draw(3, 32, "float32")
    dropout = {"rate": 0.25, "dropout_key": jax.random.key(7)}
    got = pulled_back("one_tile", *drawn, **dropout)
    expected = pulled_back("plain", *drawn, **dropout)
    for ours, plain in zip(got, expected, strict=True):
        np.testing.assert_allclose(ours, plain, atol=4e-6)
    whole = pulled_back("one_tile", *drawn)
    assert abs(got[0] - whole[0]).max() > 0.1


def test_splash_sees_no_further_than_a_window(interpreted):
    query, key, value, _ = draw(2, 32, "float32")
    mask = masks.Mask(jnp.array(MASK), window=5)
    got, expected = (
        layers.attend(query, key, value, mask, kernel=kernel)
        for kernel in ("splash", "plain")
    )
    np.testing.assert_allclose(got[REAL], expected[REAL], atol=2e-6)
    whole = layers.attend(query, key, value, jnp.array(MASK), kernel="splash")
    assert abs(got - whole)[REAL].max() > 0.1


def test_an_unsupported_mask_uses_plain_attention():
    query = jnp.zeros((1, 128, 1, 8))
    ones = jnp.ones((1, 128), jnp.int32)
    assert select.takes("splash", query, masks.Mask(ones, window=3))
    assert not select.takes("cudnn", query, masks.Mask(ones, window=3))
    assert not select.takes("splash", query, masks.Mask(ones, causal=True))
    assert not select.takes("splash", query, masks.Mask(ones, keys=ones))
    assert not select.takes("splash", query[:, :100], masks.Mask(ones[:, :100]))
    assert not select.takes("splash", query, masks.Mask(ones), drops=True)
    assert select.takes("one_tile", query, masks.Mask(ones), drops=True)
    assert not select.takes("one_tile", query, masks.Mask(ones, window=3))
    long = jnp.zeros((1, 640, 1, 8))
    assert not select.takes("one_tile", long, masks.Mask(jnp.ones((1, 640), int)))


@pytest.mark.parametrize("kernel, rate", [("splash", 0.0), ("one_tile", 0.1)])
def test_a_kernel_in_bfloat16_is_as_near_to_float32_as_the_plain_path(
    interpreted, kernel, rate
):
    drawn = draw(2, 64, "bfloat16")
    dropout = {"rate": rate, "dropout_key": jax.random.key(7)}
    exact = (x.astype(jnp.float32) for x in drawn)
    exact, got, plain = (
        pulled_back(name, *x, **dropout)
        for name, x in (("plain", exact), (kernel, drawn), ("plain", drawn))
    )
    for ours, theirs, true in zip(got, plain, exact, strict=True):
        assert np.abs(ours - true)[REAL].max() < 1.5 * np.abs(theirs - true)[REAL].max()


@pytest.mark.parametrize("kernel", INTERPRETED)
def test_padding_stays_finite_forward_and_backward(interpreted, kernel):
    attend = functools.partial(layers.attend, mask=jnp.array(MASK), kernel=kernel)
    *inputs, gradient = draw(2, 64, "float32")
    y, back = jax.vjp(attend, *inputs)
    assert all(np.isfinite(x).all() for x in (y, *back(gradient)))


def test_no_scores_of_whole_rows_are_outside_a_kernel():
    def whole(kernel, length):
        shape = jax.ShapeDtypeStruct((1, length, 1, 8), "float32")
        mask = jax.ShapeDtypeStruct((1, length), "int32")
        attend = functools.partial(layers.attend, kernel=kernel)

        def total(query, mask):
            return attend(query, query, query, mask).sum()

        return f"{length},{length}]" in str(
            jax.make_jaxpr(jax.grad(total))(shape, mask)
        )

    # At 1,024 tokens a kernel's own tiles are shorter than the row.
    assert whole("plain", 1024) and not whole("splash", 1024)


@pytest.mark.parametrize(
    "kernel, rate, model_parallel, batch",
    [
        ("splash", 0.0, 2, 4),
        ("one_tile", 0.25, 2, 4),
        ("one_tile", 0.25, 4, 3),
        pytest.param("splash", 0.0, 1, 8, marks=pytest.mark.slow),
        pytest.param("splash", 0.0, 4, 3, marks=pytest.mark.slow),
        pytest.param("one_tile", 0.25, 1, 8, marks=pytest.mark.slow),
    ],
)
def test_a_kernel_is_the_same_on_any_mesh(
    interpreted, model_parallel, batch, kernel, rate
):
    # 4 does not divide 2 heads, nor 2 divide 3 rows: these stay whole.
    query, key, value, _ = (np.resize(x, (batch, 128, 2, 8)) for x in draw(2, 8, "f4"))
    mask = np.resize(MASK, (batch, 128))
    mesh = sharding.make_mesh(model_parallel)
    rows = "data" if batch % mesh.shape["data"] == 0 else None
    placed = [
        jax.device_put(x, NamedSharding(mesh, PartitionSpec(rows)))
        for x in (query, key, value, mask)
    ]

    def total(kernel, query, key, value, mask):
        dropout = {"rate": rate, "dropout_key": jax.random.key(7)}
        y = layers.attend(query, key, value, mask, kernel=kernel, **dropout)
        return (jnp.where(mask[:, :, None, None] > 0, y, 0) ** 2).sum()

    def gradients(kernel):
        return jax.jit(jax.grad(functools.partial(total, kernel), argnums=(0, 1, 2)))

    expected = gradients("plain")(query, key, value, mask)
    with jax.set_mesh(mesh):
        got = gradients(kernel)(*placed)
    for ours, plain in zip(got, expected, strict=True):
        np.testing.assert_allclose(ours, plain, atol=1e-5)


def test_unsupported_rows_use_plain_attention():
    x = jax.random.normal(jax.random.key(0), (2, 7, 1, 8))
    mask = jnp.ones((2, 7), jnp.int32)
    got = layers.attend(x, x, x, mask, kernel="splash")
    np.testing.assert_array_equal(got, layers.attend(x, x, x, mask))


TPU = select.DeviceSpec("tpu", 0.0, 512, 8)


def config(**fields):
    return BertConfig(attention_probs_dropout_prob=0.0, **fields)


def test_auto_takes_a_kernel_on_a_tpu_for_long_rows():
    assert config().for_device(*TPU).attention == "splash"
    assert config(dtype="bfloat16").for_device(*TPU).attention == "splash"
    for other in ({"platform": "cpu"}, {"length": 128}, {"length": 500}):
        assert config().for_device(*TPU._replace(**other)).attention == "plain"


def test_auto_chooses_the_dropout_kernel_if_weights_are_dropped():
    assert BertConfig().for_device(*TPU).attention == "one_tile"
    for other in ({"platform": "gpu", "capability": 9.0}, {"length": 1024}):
        assert BertConfig().for_device(*TPU._replace(**other)).attention == "plain"


@pytest.mark.parametrize(
    "fields, place, message",
    [
        (
            {},
            {"platform": "cpu"},
            "runs on a tpu, but this run is on a cpu; run it on a tpu",
        ),
        ({"dtype": "float16"}, {}, "not compute in dtype=float16; set dtype=bfloat16"),
        (
            {"attention_probs_dropout_prob": 0.1},
            {},
            "drops no weights; set encoder.attention_probs_dropout_prob=0.1 to 0",
        ),
        ({}, {"length": 500}, "no rows of 500 tokens; make them a multiple of 128"),
    ],
)
def test_a_kernel_that_does_not_fit_is_refused(fields, place, message):
    demanded = BertConfig(
        **{"attention": "splash", "attention_probs_dropout_prob": 0.0, **fields}
    )
    with pytest.raises(ValueError, match=message) as error:
        demanded.for_device(*TPU._replace(**place))
    assert str(error.value).startswith("attention='splash' ")
    assert len(str(error.value).splitlines()) <= 3


def test_a_run_chooses_by_its_devices_and_rows_before_anything_compiles():
    rows = SimpleNamespace(max_length=512, sequences_per_row=8)
    task = SimpleNamespace(rows={"train": rows})
    run = TrainConfig(encoder=config(), task=task)
    mesh = sharding.make_mesh()
    assert encoder_for(run, task, mesh).attention == "plain"
    run.attention = "splash"
    with pytest.raises(ValueError, match="runs on a tpu, but this run is on a cpu"):
        encoder_for(run, task, mesh)
    run.encoder.attention = "plain"
    with pytest.raises(ValueError, match="set attention only"):
        encoder_for(run, task, mesh)


def test_an_unknown_kernel_is_refused():
    with pytest.raises(ValueError, match="attention='flash' is unknown; .* splash"):
        BertConfig(attention="flash").validate()


def test_an_encoder_has_equal_outputs_with_a_kernel(interpreted):
    sizes = config(
        vocab_size=11,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=20,
        max_position_embeddings=128,
        initializer_range=0.2,
    )
    ids = jax.random.randint(jax.random.key(0), SHAPE, 0, 11)
    params = Bert(sizes).init(jax.random.key(1), ids)
    plain = Bert(sizes).apply(params, ids, jnp.array(MASK))
    sizes.attention = "splash"
    fast = Bert(sizes).apply(params, ids, jnp.array(MASK))
    np.testing.assert_allclose(fast[REAL], plain[REAL], atol=2e-5)
