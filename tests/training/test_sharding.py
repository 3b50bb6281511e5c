import dataclasses
import functools
import threading

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from benchmarks import hlo
from bert_jax.training import sharding
from bert_jax.training.optimizers import OptimizerConfig, make_optimizer

SHAPES = {
    "encoder": {
        "embeddings": {
            "word": (1024, 64),
            "position": (2048, 64),
            "norm": {"scale": (64,), "bias": (64,)},
        },
        "layer_0": {
            "attention": {
                "query": {"kernel": (64, 64), "bias": (64,)},
                "out": {"kernel": (64, 64), "bias": (64,)},
            },
            "mlp": {
                "up": {"kernel": (64, 1024), "bias": (1024,)},
                "down": {"kernel": (1024, 64), "bias": (64,)},
            },
        },
    },
}
OPTIMIZER = make_optimizer(OptimizerConfig(learning_rate=0.1, schedule="constant"), 9)
MESHES = {"replicated": 1, "fsdp": 1, "tensor": 4, "fsdp_tensor": 2}


def init():
    rng = np.random.default_rng(0)

    def draw(shape):
        return rng.normal(scale=0.05, size=shape).astype("f4")

    params = jax.tree.map(draw, SHAPES, is_leaf=lambda x: isinstance(x, tuple))
    return {"params": params, "opt_state": OPTIMIZER.init(params)}


STATE = init()


def layout_of(name, model_parallel):
    mesh = sharding.make_mesh(model_parallel)
    return mesh, sharding.layout(name, STATE, mesh)


def specs(name, model_parallel):
    leaves = jax.tree_util.tree_leaves_with_path(layout_of(name, model_parallel)[1])
    keystr = jax.tree_util.keystr
    return {keystr(p, simple=True, separator="/"): s.spec for p, s in leaves}


def bytes_on_each_device(name, model_parallel):
    _, shardings = layout_of(name, model_parallel)
    state = jax.device_put(STATE, shardings)
    held = dict.fromkeys(jax.devices(), 0)
    for leaf in jax.tree.leaves(state):
        for shard in leaf.addressable_shards:
            held[shard.device] += shard.data.nbytes
    assert len(set(held.values())) == 1
    return held[jax.devices()[0]]


def whole_bytes():
    return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(STATE))


def test_replicated_keeps_every_byte_on_every_device():
    assert bytes_on_each_device("replicated", 1) == whole_bytes()


def test_fsdp_keeps_an_eighth_of_parameters_and_moments_on_each_of_eight():
    # Vectors and the small attention kernels stay whole.
    assert whole_bytes() / 8 < bytes_on_each_device("fsdp", 1) < whole_bytes() / 5


def test_tensor_shards_everything_but_positions_and_vectors():
    positions = 3 * 4 * 2048 * 64
    held = bytes_on_each_device("tensor", 4)
    assert positions + whole_bytes() / 8 < held < positions + whole_bytes() / 5


def test_fsdp_tensor_keeps_less_than_half_of_what_tensor_keeps():
    tensor = bytes_on_each_device("tensor", 2)
    assert bytes_on_each_device("fsdp_tensor", 2) < tensor / 2


def test_moments_have_the_layout_of_their_parameter():
    for name, model_parallel in MESHES.items():
        layout = specs(name, model_parallel)
        params = {k: s for k, s in layout.items() if k.startswith("params/")}
        for path, spec in params.items():
            ending = path.removeprefix("params/")
            same = [s for k, s in layout.items() if k.endswith(f"/{ending}")]
            assert same == [spec] * 3, (name, path)


def test_tensor_follows_megatron():
    layout = specs("tensor", 4)
    layer = "params/encoder/layer_0"
    assert layout["params/encoder/embeddings/word"] == P("model", None)
    assert layout["params/encoder/embeddings/position"] == P(None, None)
    assert layout[f"{layer}/attention/query/kernel"] == P(None, "model")
    assert layout[f"{layer}/attention/query/bias"] == P("model")
    assert layout[f"{layer}/attention/out/kernel"] == P("model", None)
    assert layout[f"{layer}/attention/out/bias"] == P(None)
    assert layout[f"{layer}/mlp/up/kernel"] == P(None, "model")
    assert layout[f"{layer}/mlp/down/kernel"] == P("model", None)


def test_fsdp_tensor_shards_the_dimension_that_tensor_does_not():
    layout = specs("fsdp_tensor", 2)
    assert layout["params/encoder/layer_0/mlp/up/kernel"] == P("data", "model")
    assert layout["params/encoder/layer_0/mlp/down/kernel"] == P("model", "data")
    assert layout["params/encoder/embeddings/position"] == P("data", None)


@pytest.mark.parametrize("name", ["fsdp", "tensor", "fsdp_tensor"])
def test_dimensions_that_do_not_divide_are_not_sharded(name):
    mesh = sharding.make_mesh(4 if "tensor" in name else 1)
    word = {"embeddings": {"word": jax.ShapeDtypeStruct((30523, 769), jnp.float32)}}
    word_layout = sharding.layout(name, word, mesh)["embeddings"]["word"]
    assert word_layout.spec == P(None, None)


def test_a_rule_matches_whole_names_only():
    mesh = sharding.make_mesh(4)
    tree = {"antikey": {"kernel": jax.ShapeDtypeStruct((8, 8), jnp.float32)}}
    assert sharding.layout("tensor", tree, mesh)["antikey"]["kernel"].spec == P(
        None, None
    )


@pytest.mark.parametrize(
    "name, same, model_parallel",
    [
        ("fsdp", "replicated", 8),  # one copy alone
        ("fsdp_tensor", "tensor", 8),
        ("tensor", "replicated", 1),  # each device has a copy
    ],
)
def test_layouts_coincide_where_an_axis_is_one_device(name, same, model_parallel):
    _, one = layout_of(name, model_parallel)
    _, other = layout_of(same, model_parallel)

    def placed_alike(x, y, leaf):
        return x.is_equivalent_to(y, len(leaf.shape))

    assert all(jax.tree.leaves(jax.tree.map(placed_alike, one, other, STATE)))


def loss(params, x):
    layer = params["encoder"]["layer_0"]
    x = params["encoder"]["embeddings"]["word"][x]
    for side in ("query", "out"):
        x = jnp.tanh(x @ layer["attention"][side]["kernel"])
    y = jnp.tanh(x @ layer["mlp"]["up"]["kernel"]) @ layer["mlp"]["down"]["kernel"]
    return jnp.mean((x + y) ** 2)


def train(name, model_parallel):
    mesh, shardings = layout_of(name, model_parallel)
    state = jax.device_put(STATE, shardings)

    @functools.partial(jax.jit, out_shardings=shardings)
    def step(state, x):
        gradients = jax.grad(loss)(state["params"], x)
        updates, opt_state = OPTIMIZER.update(
            gradients, state["opt_state"], state["params"]
        )
        params = optax.apply_updates(state["params"], updates)
        return {"params": params, "opt_state": opt_state}

    for seed in range(2):
        rows = np.random.default_rng(seed).integers(1024, size=16)
        state = step(state, sharding.place_batch(rows, mesh))
    return jax.device_get(state["params"])


def test_every_layout_trains_to_the_same_parameters():
    expected = train("replicated", 1)
    for name in ("fsdp", "tensor", "fsdp_tensor"):
        got = train(name, MESHES[name])
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5), got, expected
        )


def test_model_parallel_must_divide_the_devices():
    with pytest.raises(ValueError, match="model_parallel=3 does not divide the 8 dev"):
        sharding.make_mesh(3)
    with pytest.raises(ValueError, match="choose one of 1, 2, 4, 8"):
        sharding.make_mesh(0)


def test_a_batch_must_give_every_device_whole_rows_of_every_micro_batch():
    mesh = sharding.make_mesh(2)
    sharding.check_batch(24, 3, mesh)
    with pytest.raises(ValueError, match="batch_size=30 is not a multiple of 12 "):
        sharding.check_batch(30, 3, mesh)
    with pytest.raises(ValueError, match="batch_size=3 .* use 4"):
        sharding.place_batch({"x": np.zeros((3, 5))}, mesh)


def test_a_placed_batch_is_sharded_by_rows_over_the_data_axis():
    mesh = sharding.make_mesh(2)
    batch = {"ids": np.arange(8 * 3).reshape(8, 3), "row": np.arange(8)}
    placed = sharding.place_batch(batch, mesh)
    np.testing.assert_array_equal(placed["ids"], batch["ids"])
    assert {s.data.shape for s in placed["ids"].addressable_shards} == {(2, 3)}
    assert placed["row"].sharding == sharding.batch_sharding(mesh)


def test_prefetch_keeps_the_order():
    assert list(sharding.prefetch(range(7), lambda x: 10 * x)) == list(range(0, 70, 10))


def test_prefetch_reads_no_further_than_its_depth():
    read = []
    stream = sharding.prefetch((read.append(i) or i for i in range(50)), int, depth=3)
    assert next(stream) == 0
    stream.close()
    assert len(read) <= 4


def test_prefetch_raises_the_error_of_its_thread():
    def broken():
        yield 1
        yield 2
        raise OSError("the disk is gone")

    stream = sharding.prefetch(broken(), lambda x: x)
    assert [next(stream), next(stream)] == [1, 2]
    with pytest.raises(OSError, match="the disk is gone"):
        next(stream)


def test_prefetch_leaves_no_thread_behind():
    before = threading.active_count()
    stream = sharding.prefetch(iter(int, 1), lambda x: x)
    next(stream)
    assert threading.active_count() == before + 1
    stream.close()
    assert threading.active_count() == before


@dataclasses.dataclass(frozen=True)
class Chip:
    """A device of a TPU slice, as JAX describes it."""

    coords: tuple[int, int, int]
    process_index: int = 0
    slice_index: int = 0
    core_on_chip: int = 0
    platform: str = "tpu"
    device_kind: str = "TPU v4"


def chips(lengths, host=(2, 2, 1)):
    """The chips of a slice; a host has those of a box."""
    hosts = np.ceil(np.divide(lengths, host)).astype(int)
    return [
        Chip(place, int(np.ravel_multi_index(np.floor_divide(place, host), hosts)))
        for place in np.ndindex(lengths)
    ]


@pytest.mark.parametrize(
    "lengths, model_parallel, expected",
    [
        ((8, 8, 1), 1, (8, 8, 1)),
        ((4, 4, 4), 2, (4, 4, 2)),
        ((2, 2, 4), 1, (2, 2, 4)),
        ((2, 4, 1), 4, (2, 1, 1)),
        ((2, 2, 1), 4, (1, 1, 1)),  # no axis divides
        ((2, 2, 4), 8, (2, 1, 1)),
        ((4, 4, 1), 8, (2, 1, 1)),
    ],
)
def test_copies_lie_along_the_axes_of_a_slice(lengths, model_parallel, expected):
    mesh = sharding.make_mesh(model_parallel, chips(lengths))
    assert mesh.devices.shape == (*expected, model_parallel)
    assert set(mesh.devices.flat) == set(chips(lengths))


def test_neighbours_in_the_mesh_are_neighbours_in_the_slice():
    for lengths in ((2, 2, 4), (2, 4, 1), (4, 8, 1), (2, 4, 4)):
        for model_parallel in (1, 2, 4):
            mesh = sharding.make_mesh(model_parallel, chips(lengths))
            coords = np.array([chip.coords for chip in mesh.devices.flat])
            coords = coords.reshape(*mesh.devices.shape, 3)
            for axis in range(4):
                # Copies along an axis that "model" shares are `model_parallel` apart.
                hops = np.abs(np.diff(coords, axis=axis)).sum(-1)
                assert hops.size == 0 or set(hops.flat) <= {1, model_parallel}
            assert set(np.abs(np.diff(coords, axis=3)).sum(-1).flat) <= {1}


def test_two_cores_a_chip_lie_along_one_axis():
    cores = [
        dataclasses.replace(chip, core_on_chip=core, device_kind="TPU7x")
        for chip in chips((2, 2, 4))
        for core in range(2)
    ]
    assert sharding.make_mesh(2, cores).devices.shape == (16, 1, 1, 2)


def test_slices_lie_along_the_last_axis_of_the_copies():
    both = [
        dataclasses.replace(chip, slice_index=n)
        for chip in chips((4, 4, 1))
        for n in range(2)
    ]
    mesh = sharding.make_mesh(2, both)
    assert mesh.devices.shape == (4, 2, 2, 2)
    numbers = np.vectorize(lambda chip: chip.slice_index)(mesh.devices)
    assert (numbers == np.arange(2)[:, None]).all()
    with pytest.raises(ValueError, match="16 devices of each of the 2 slices; choose"):
        sharding.make_mesh(32, both)


def shares(mesh, batch_size):
    """The rows of each process, by its number."""
    processes = sorted({device.process_index for device in mesh.devices.flat})
    return [sharding.process_rows(mesh, batch_size, i).tolist() for i in processes]


def test_a_process_reads_the_rows_of_its_devices():
    # v5litepod-16: four hosts of 2 x 2 chips.
    slice_16 = chips((4, 4, 1))
    assert shares(sharding.make_mesh(1, slice_16), 16) == [
        [0, 1, 4, 5],
        [2, 3, 6, 7],
        [8, 9, 12, 13],
        [10, 11, 14, 15],
    ]
    # A copy of four chips spans two hosts, which read the same rows.
    left, right = [0, 1, 2, 3], [4, 5, 6, 7]
    assert shares(sharding.make_mesh(4, slice_16), 8) == [left, left, right, right]
    assert shares(sharding.make_mesh(16, slice_16), 3) == [[0, 1, 2]] * 4


@pytest.mark.parametrize("lengths", [(4, 4, 1), (2, 4, 1), (2, 2, 4), (4, 4, 4)])
@pytest.mark.parametrize("host", [(1, 1, 1), (2, 2, 1), (2, 4, 1)])
@pytest.mark.parametrize("model_parallel", [1, 2, 4, 8])
def test_the_rows_of_all_processes_are_those_that_their_devices_hold(
    lengths, host, model_parallel
):
    mesh = sharding.make_mesh(model_parallel, chips(lengths, host=host))
    copies = sharding.copies(mesh)
    rows = np.arange(2 * copies).reshape(copies, 2)
    by_copy = mesh.devices.reshape(copies, model_parallel)
    for process, share in enumerate(shares(mesh, 2 * copies)):
        held = [any(d.process_index == process for d in copy) for copy in by_copy]
        assert share == rows[held].ravel().tolist()


def test_matrices_are_exchanged_along_one_torus_axis_at_a_time_with_equal_sums():
    torus = Mesh(np.reshape(jax.devices(), (4, 2, 1, 1)), (*sharding.COPIES, "model"))
    params = {"kernel": jnp.sin(jnp.arange(2.0**18).reshape(512, 512))}
    rows = jnp.cos(jnp.arange(16 * 512.0).reshape(16, 512))

    def gradient(mesh):
        layout = sharding.layout("fsdp", params, mesh)

        def loss(params, rows):
            return (jnp.tanh(rows @ params["kernel"]) ** 2).sum()

        def step(params, rows):
            whole = sharding.gather(params, layout, "float32")
            return sharding.scatter(jax.grad(loss)(whole, rows), layout)

        step = jax.jit(step, out_shardings=layout)
        placed = jax.device_put(params, layout), sharding.place_batch(rows, mesh)
        text = step.lower(*placed).compile().as_text()
        exchanged = [x for x in hlo.collectives(text) if x.bytes > 10_000]
        return step(*placed)["kernel"], {len(x.group) for x in exchanged}

    gradients, groups = gradient(torus)
    line, whole = gradient(sharding.make_mesh())
    assert (groups, whole) == ({2, 4}, {8})
    np.testing.assert_allclose(gradients, line, rtol=1e-4, atol=1e-4)
    assert gradients.sharding.shard_shape(gradients.shape) == (64, 512)
