"""The device mesh, layouts of arrays as functions of (path, shape), and batches.

Modules hold no sharding word; XLA's partitioner completes what a layout begins.
"""

import collections
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import jax
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

# Below this many elements a matrix costs more to gather than to keep whole.
FSDP_MIN_SIZE = 2**16

# Megatron's pattern (Shoeybi et al. 2019, section 3): the first product of a pair is
# cut by columns, the second by rows, so that a pair needs one sum over the devices.
TENSOR_RULES = (
    ("embeddings/word", ("model", None)),
    ("query/kernel", (None, "model")),
    ("key/kernel", (None, "model")),
    ("value/kernel", (None, "model")),
    ("distance/kernel", (None, "model")),
    ("query/bias", ("model",)),
    ("key/bias", ("model",)),
    ("value/bias", ("model",)),
    ("out/kernel", ("model", None)),
    ("up/kernel", (None, "model")),
    ("up/bias", ("model",)),
    ("gate/kernel", (None, "model")),
    ("gate/bias", ("model",)),
    ("down/kernel", ("model", None)),
)

# The mesh's axes over which the copies of a model lie: those of a TPU slice's torus,
# and elsewhere the first alone. Rules below call them "data", all together.
COPIES = ("data", "data_y", "data_z")

Placed = TypeVar("Placed")


def make_mesh(
    model_parallel: int = 1, devices: Sequence[jax.Device] | None = None
) -> Mesh:
    """Devices by the axes `COPIES` and "model", the devices that share one copy.

    None takes all there are; those of a topology may not be there at all.
    """
    slices = _slices(jax.devices() if devices is None else devices)
    count = len(slices[0])
    if model_parallel < 1 or count % model_parallel:
        where = f" of each of the {len(slices)} slices" if len(slices) > 1 else ""
        raise ValueError(
            f"model_parallel={model_parallel} does not divide the {count} devices"
            f"{where}; choose one of {', '.join(map(str, _divisors(count)))}"
        )
    # Matrices are cut over the last of the copies' axes last, when they are smallest:
    # so the slow network between slices has the least to carry.
    placed = np.concatenate([_placed(x, model_parallel) for x in slices], axis=-2)
    # Auto is stated because the default, Explicit, breaks stock Linen layers.
    auto = (AxisType.Auto,) * placed.ndim
    return Mesh(placed, (*COPIES, "model"), axis_types=auto)


def _slices(devices):
    """The devices of each TPU slice; all in one list where there are no slices."""
    slices = collections.defaultdict(list)
    for device in devices:
        is_tpu = device.platform == "tpu"
        slices[getattr(device, "slice_index", None) if is_tpu else None].append(device)
    return [slices[key] for key in sorted(slices, key=lambda key: key or 0)]


def _placed(devices, model_parallel):
    """The devices `[x, y, z, model]` of one slice, each beside its neighbours.

    Where "model" divides no axis of the slice, or a chip is two devices, all copies lie
    along the first axis.
    """
    if devices[0].platform == "tpu":
        places = np.array([device.coords for device in devices])
        places -= places.min(axis=0)
        lengths = (places.max(axis=0) + 1).tolist()
        axes = [n for n, length in enumerate(lengths) if length % model_parallel == 0]
        if math.prod(lengths) == len(devices) and axes:
            torus = np.empty(lengths, object)
            for device, place in zip(devices, places, strict=True):
                torus[tuple(place)] = device
            axis = axes[-1]
            lengths[axis : axis + 1] = lengths[axis] // model_parallel, model_parallel
            return np.moveaxis(torus.reshape(lengths), axis + 1, -1)
    shape = (len(devices) // model_parallel, 1, 1, model_parallel)
    return mesh_utils.create_device_mesh(shape, devices, allow_split_physical_axes=True)


def copies(mesh: Mesh) -> int:
    """The number of copies of the model; each gets its own rows."""
    return math.prod(mesh.shape[axis] for axis in COPIES)


def layout(name: str, tree: Any, mesh: Mesh) -> Any:
    """A tree of shardings for `tree`, a whole training state or a part of one.

    Rules read the end of a path, so that an optimizer's moments lie where their
    parameter lies.

    Args:
      name: one of `LAYOUTS`.
      tree: arrays, or shapes from `jax.eval_shape`.
      mesh: from `make_mesh`.
    """
    rule = LAYOUTS[name]
    devices = {"data": copies(mesh), "model": mesh.shape["model"]}
    over = {None: None, "model": "model", "data": _axes(mesh)}

    def place(path, leaf):
        path = jax.tree_util.keystr(path, simple=True, separator="/")
        axes = rule(path, leaf.shape, devices)
        return NamedSharding(mesh, PartitionSpec(*(over[axis] for axis in axes)))

    return jax.tree.map_with_path(place, tree)


def gather(params: Any, layout: Any, dtype: str) -> Any:
    """Parameters as a step computes with them: large matrices in `dtype`, and whole on
    each copy.

    They are cast before they are gathered, so that half the bytes cross, and gathered
    once. Left to itself, XLA's partitioner brings the activations to the matrices.
    """

    def place(x, sharding):
        if is_large(x.shape):
            x = x.astype(dtype)
        for less in reversed(_stages(sharding)):
            x = jax.lax.with_sharding_constraint(x, less)
        return x

    return jax.tree.map(place, params, layout)


def scatter(gradients: Any, layout: Any) -> Any:
    """Gradients where their parameters lie, in float32.

    They are cast after they were summed over the copies: half the bytes cross.
    """

    def place(x, sharding):
        stages = _stages(sharding)[1:]
        # Columns of a table of words: cotangents go to the columns they belong to,
        # which is less than the table, and only where the columns are asked for.
        for part in stages if stages and sharding.spec[0] else [sharding]:
            x = jax.lax.with_sharding_constraint(x, part)
        return x.astype("float32")

    return jax.tree.map(place, gradients, layout)


def _stages(sharding):
    """From whole on each copy to `sharding`, by one axis of the torus more each time.

    TPU's compiler gathers and scatters along one axis. For several at once it sums
    whole matrices over all devices, which sends twice as much.
    """
    mesh, spec = sharding.mesh, sharding.spec
    if all(axis in (None, "model") for axis in spec):
        return [sharding]
    axes = _axes(mesh)
    cuts = [axes[:n] or None for n in range(len(axes) + 1)]
    return [
        NamedSharding(
            mesh, PartitionSpec(*(x if x in (None, "model") else cut for x in spec))
        )
        for cut in cuts
    ]


def _axes(mesh):
    """The axes of `COPIES` that are longer than one device, or the first axis."""
    return tuple(axis for axis in COPIES if mesh.shape[axis] > 1) or COPIES[:1]


# Layout rules: (path, shape, devices on each axis) -> an axis or None a dimension.


def replicated(path: str, shape: tuple, devices: dict[str, int]) -> tuple:
    """Everything whole on every device."""
    return (None,) * len(shape)


def fsdp(path: str, shape: tuple, devices: dict[str, int]) -> tuple:
    """Large matrices cut over the copies, on their first dimension that divides."""
    return _cut_over_data(replicated(path, shape, devices), shape, devices)


def tensor(path: str, shape: tuple, devices: dict[str, int]) -> tuple:
    """Products cut over "model" by `TENSOR_RULES`, the rest whole.

    A dimension that "model" does not divide stays whole too: 30,522 words, for
    one, do not split into four.
    """
    for ending, spec in TENSOR_RULES:
        if f"/{path}".endswith(f"/{ending}") and len(spec) == len(shape):
            size = shape[spec.index("model")]
            return spec if size % devices["model"] == 0 else (None,) * len(spec)
    return (None,) * len(shape)


def fsdp_tensor(path: str, shape: tuple, devices: dict[str, int]) -> tuple:
    """`tensor`, with large matrices also cut over "data" on another dimension."""
    return _cut_over_data(tensor(path, shape, devices), shape, devices)


LAYOUTS: dict[str, Callable] = {
    "replicated": replicated,
    "fsdp": fsdp,
    "tensor": tensor,
    "fsdp_tensor": fsdp_tensor,
}


def is_large(shape: tuple) -> bool:
    """True for a shape of a matrix that is worth cutting and casting."""
    return len(shape) > 1 and math.prod(shape) >= FSDP_MIN_SIZE


def _cut_over_data(spec, shape, devices):
    if not is_large(shape):
        return spec
    free = [
        d
        for d, axis in enumerate(spec)
        if axis is None and shape[d] % devices["data"] == 0
    ]
    if not free:
        return spec
    return tuple("data" if d == free[0] else axis for d, axis in enumerate(spec))


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Rows over the copies."""
    return NamedSharding(mesh, PartitionSpec(_axes(mesh)))


def check_batch(batch_size: int, accumulation: int, mesh: Mesh) -> None:
    """Raises ValueError unless every device gets whole rows of every micro-batch."""
    parts = copies(mesh) * accumulation
    if batch_size % parts:
        raise ValueError(
            f"batch_size={batch_size} is not a multiple of {parts} "
            f"({copies(mesh)} copies of the model x accumulation="
            f"{accumulation}); use {max(batch_size // parts, 1) * parts}"
        )


def process_rows(mesh: Mesh, batch_size: int, process: int) -> np.ndarray:
    """The places in a batch whose rows the devices of a process hold, in order.

    Two processes that share a copy of the model hold the same rows.
    """
    size = batch_size // copies(mesh)
    held = _held_copies(mesh, process)
    return (held[:, None] * size + np.arange(size)).ravel()


def _held_copies(mesh, process):
    """The numbers of the copies that a process has a device of, in order."""
    shards: Any = batch_sharding(mesh).devices_indices_map((copies(mesh),))
    return np.unique(
        [s.start or 0 for d, (s,) in shards.items() if d.process_index == process]
    )


def place_batch(batch: Any, mesh: Mesh) -> Any:
    """This process's rows of a batch, as arrays over all devices.

    Args:
      batch: tree of NumPy arrays, each with the rows that `process_rows` names.
      mesh: from `make_mesh`.
    """
    sharding, process = batch_sharding(mesh), jax.process_index()
    held = len(_held_copies(mesh, process))

    def place(x: np.ndarray) -> jax.Array:
        batch_size = len(x) * copies(mesh) // held
        check_batch(batch_size, 1, mesh)
        rows = process_rows(mesh, batch_size, process)

        def shard(index):
            start, stop, _ = index[0].indices(batch_size)
            first = np.searchsorted(rows, start)
            return x[first : first + stop - start]

        shape = (batch_size, *x.shape[1:])
        return jax.make_array_from_callback(shape, sharding, shard)

    return jax.tree.map(place, batch)


def prefetch(
    batches: Iterable[Any], place: Callable[[Any], Placed], depth: int = 2
) -> Iterator[Placed]:
    """`place(batch)` for each batch, in order, computed `depth` batches ahead.

    One background thread reads and places; its errors come out here. Closing the
    iterator drops what was not read yet.
    """
    source = iter(batches)
    end = object()

    def fetch():
        batch = next(source, end)
        return end if batch is end else place(batch)

    pool = ThreadPoolExecutor(1, thread_name_prefix="prefetch")
    try:
        ahead = collections.deque(pool.submit(fetch) for _ in range(depth))
        while (placed := ahead.popleft().result()) is not end:
            ahead.append(pool.submit(fetch))
            yield placed
    finally:
        pool.shutdown(cancel_futures=True)


def _divisors(n):
    return [d for d in range(1, n + 1) if n % d == 0]
