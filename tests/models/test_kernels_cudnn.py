"""Laws of cuDNN's attention that hold without a GPU: arguments, lowering, refusals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src.cudnn import fused_attention_stablehlo as private

from bert_jax.models import BertConfig, layers
from bert_jax.models.kernels import gpu, select
from bert_jax.training import sharding

GPU = select.DeviceSpec("gpu", 9.0, 512, 8)


def config(**fields):
    return BertConfig(
        **{"dtype": "bfloat16", "attention_probs_dropout_prob": 0.0} | fields
    )


def counted(row):
    """(value, start, length) of each run of equal values in a row."""
    counted_runs = []
    for i, value in enumerate(row):
        if counted_runs and counted_runs[-1][0] == value:
            counted_runs[-1][2] += 1
        else:
            counted_runs.append([value, i, 1])
    return counted_runs


def test_runs_of_a_mask_equal_those_of_a_plain_loop():
    draw = np.random.default_rng(0)
    mask = np.sort(draw.integers(0, 5, (40, 13)), axis=1).astype(np.int32)
    mask[20:] = mask[20:, ::-1]
    mask[0], mask[1] = 0, 3
    most = 6
    lengths, starts, fits = map(np.asarray, gpu.runs(jnp.array(mask), most))
    assert fits.all() and lengths.dtype == starts.dtype == np.int32
    for row, sizes, begins in zip(mask, lengths, starts, strict=True):
        counted_runs = counted(row)
        rest = [-1] * (most - len(counted_runs))
        assert sizes.tolist() == [n for _, _, n in counted_runs] + rest
        assert begins.tolist() == [i for _, i, _ in counted_runs] + rest + [-1]


def test_rows_that_cudnn_would_compute_wrongly_are_detected():
    rows = {
        (1, 2, 3, 0, 0): True,
        (0, 1, 1, 2, 0): True,
        (1, 2, 3, 4, 0): False,  # five runs
        (1, 2, 2, 1, 1): False,  # one sequence in two places
        (1, 0, 1, 0, 0): False,
    }
    fits = gpu.runs(jnp.array(list(rows), jnp.int32), 4)[2]
    assert fits.tolist() == list(rows.values())


@pytest.fixture
def hopper(monkeypatch):
    """JAX asks for cuDNN and its device while it traces."""
    monkeypatch.setattr(private, "check_cudnn_version", lambda: 91300)
    monkeypatch.setattr(private, "check_compute_capability", lambda least: True)


@pytest.fixture
def call(monkeypatch):
    """The arguments of cuDNN's own function, which is not called."""
    seen = {}

    def record(query, key, value, *_, **arguments):
        seen.update(arguments, query=query)
        return query

    monkeypatch.setattr(private, "dot_product_attention", record)
    return seen


def test_a_row_that_does_not_fit_gives_nan_and_the_others_do_not(call):
    mask = jnp.array([[1, 1, 2, 0], [1, 2, 1, 0]], jnp.int32)
    x = jnp.ones((2, 4, 1, 8), jnp.bfloat16)
    y = gpu.load_packed()(x, x, x, mask)
    assert np.isnan(y.astype("float32")).all((1, 2, 3)).tolist() == [False, True]
    assert np.isfinite(y[0].astype("float32")).all()


def test_packed_rows_reach_cudnn_as_runs_of_queries_and_keys(call):
    mask = jnp.array([[1, 1, 2, 0]], jnp.int32)
    x = jnp.ones((1, 4, 1, 64), jnp.bfloat16)
    gpu.load_packed()(x, x, x, mask)
    rest = [-1] * (gpu.PACKED - 2)
    assert call["q_seqlen"].tolist() == call["kv_seqlen"].tolist() == [[2, 1, 1, *rest]]
    starts = [[0, 2, 3, *rest, -1]]
    assert call["q_offsets"].tolist() == call["kv_offsets"].tolist() == starts
    assert call["scale"] == 1 / 8 and call["mask_type"] == private.MaskType.PADDING


def test_plain_rows_reach_cudnn_by_their_lengths(monkeypatch):
    seen = {}

    def record(query, key, value, **arguments):
        seen.update(arguments)
        # The same by XLA.
        return attend(query, key, value, **arguments | {"implementation": "xla"})

    attend = jax.nn.dot_product_attention
    monkeypatch.setattr(jax.nn, "dot_product_attention", record)
    mask = jnp.array([[1, 1, 1, 0], [1, 1, 1, 1], [0, 0, 0, 0], [0, 1, 1, 1]])
    x = jax.random.normal(jax.random.key(0), (4, 4, 2, 8))
    y = gpu.attend(x, x, x, mask)
    assert seen["key_value_seq_lengths"].tolist() == [3, 4, 1, 3]
    assert seen["implementation"] == "cudnn" and "mask" not in seen
    # Padding too sees what it sees on the plain path.
    np.testing.assert_allclose(y[:2], layers.attend(x, x, x, mask)[:2], atol=1e-6)
    assert np.isfinite(y[2]).all() and np.isnan(y[3]).all()


def lowered(name):
    """The program for CUDA of a gradient through a kernel."""
    x = jax.ShapeDtypeStruct((8, 48, 4, 64), "bfloat16")
    mask = jax.ShapeDtypeStruct((8, 48), "int32")

    def total(query, key, value, mask):
        y = layers.attend(query, key, value, mask, kernel=name)
        return y.astype("float32").sum()

    traced = jax.jit(jax.grad(total, argnums=(0, 1, 2))).trace(x, x, x, mask)
    return traced.lower(lowering_platforms=("cuda",)).as_text()


@pytest.mark.parametrize("name, segments", [("cudnn", 1), ("cudnn_packed", 9)])
def test_a_gradient_lowers_to_cudnns_two_calls_without_scores(hopper, name, segments):
    program = lowered(name)
    assert program.count("__cudnn$fmhaSoftmax(") == 1
    assert program.count("__cudnn$fmhaSoftmaxBackward(") == 1
    assert program.count(f"max_seg_per_batch\\22: {segments}") == 2
    assert "48x48x" not in program and "48x48x" in lowered("plain")


def test_each_device_calls_cudnn_for_its_own_rows_and_heads(hopper):
    with jax.set_mesh(sharding.make_mesh(2)):
        program = lowered("cudnn_packed")
    # Of 8 rows and 4 heads, on 4 x 2 devices.
    assert "dimensions\\22: [\\222\\22, \\222\\22, \\2248\\22, \\2248\\22]" in program


def test_auto_takes_cudnn_by_what_rows_hold_and_the_gpu():
    assert config().for_device(*GPU).attention == "cudnn_packed"
    assert config().for_device(*GPU._replace(sequences=1)).attention == "cudnn"
    ampere = GPU._replace(capability=8.0)
    assert config().for_device(*ampere).attention == "plain"
    assert config().for_device(*ampere._replace(sequences=1)).attention == "cudnn"
    assert config(dtype="float32").for_device(*GPU).attention == "plain"
    assert BertConfig(dtype="bfloat16").for_device(*GPU).attention == "plain"


@pytest.mark.parametrize(
    "fields, place, message",
    [
        ({"dtype": "float32"}, {}, "not compute in dtype=float32; set dtype=bfloat16"),
        ({"num_attention_heads": 4}, {}, "up to 128, not 192; change num_attention"),
        ({}, {"sequences": 9}, "no rows of 9 sequences; prepare rows of at most 8"),
        ({}, {"capability": 8.0}, "capability 9.0, but this one has 8.0; use another"),
        ({"attention": "cudnn"}, {}, "rows of 8 sequences; prepare rows of at most 1"),
        (
            {},
            {"platform": "tpu"},
            "runs on a gpu, but this run is on a tpu; run",
        ),
    ],
)
def test_cudnn_is_refused_where_it_does_not_fit(fields, place, message):
    demanded = config(**{"attention": "cudnn_packed"} | fields)
    with pytest.raises(ValueError, match=message) as error:
        demanded.for_device(*GPU._replace(**place))
    assert len(str(error.value).splitlines()) <= 3
