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
    devices = jax.devices() if devices is None else devices
    count = len(devices)
    if model_parallel < 1 or count % model_parallel:
        raise ValueError(
            f"model_parallel={model_parallel} does not divide the {count} devices; "
            f"choose one of {', '.join(map(str, _divisors(count)))}"
        )
    # Auto is stated because the default, Explicit, breaks stock Linen layers.
    return jax.make_mesh(
        (*_torus(devices, model_parallel), model_parallel),
        (*COPIES, "model"),
        axis_types=(AxisType.Auto,) * (len(COPIES) + 1),
        devices=devices,
    )


def _torus(devices, model_parallel):
    """The copies along each axis of the slice, or along one where it has none."""
    count = len(devices)
    if devices[0].platform == "tpu":
        lengths = np.ptp([device.coords for device in devices], axis=0) + 1
        divides = np.flatnonzero(lengths % model_parallel == 0)
        if lengths.prod() == count and len(divides):
            lengths[divides[-1]] //= model_parallel
            return tuple(lengths.tolist())
    return count // model_parallel, 1, 1


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


def place_batch(batch: Any, mesh: Mesh) -> Any:
    """This process's rows of a batch, as arrays over all devices.

    Args:
      batch: tree of NumPy arrays, each `[B / processes, ...]`.
      mesh: from `make_mesh`.
    """
    sharding = batch_sharding(mesh)
    for x in jax.tree.leaves(batch):
        check_batch(len(x) * jax.process_count(), 1, mesh)

    def place(x: np.ndarray) -> jax.Array:
        return jax.make_array_from_process_local_data(sharding, x)

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
