"""The attention kernels for TPUs and GPUs, and the choice among them.

A kernel computes what `layers.attend` computes, but keeps no matrix of scores in the
device's memory. `KERNELS` says what each one takes. A run knows its devices and rows
before it compiles, so it chooses then, and no module asks for a device. Padding may get
other numbers than on the plain path; they are finite, and nothing reads them.
"""

import functools
import math
import warnings
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

import jax
from jax.sharding import PartitionSpec

from bert_jax.models import ops
from bert_jax.models.kernels import gpu
from bert_jax.models.masks import Mask

Attend = Callable[..., jax.Array]


class Kernel(NamedTuple):
    """A way to compute attention, and what it takes.

    Attributes:
      load: imports the kernel and returns it, a function of `(query, key, value, mask)`
        as `layers.attend`. It raises ImportError or AttributeError where this version
        of JAX lacks something that the kernel is made of.
      platform: the devices it is compiled for, "tpu" or "gpu".
      multiple: the number that the length of a row must be a multiple of.
      shortest: the length below which the plain path is faster.
      dtypes: the dtypes of the compute.
      sequences: the most sequences in one row; 0: any number.
      capability: the least compute capability of a GPU.
      max_length: the longest row; 0: any length.
      windows: whether it takes the keyword `window`, see `masks.Mask`.
      drops: whether it drops weights: it takes `starts`, `second` and the keyword
        `rate`, see `tpu.dropout_attention`.
    """

    load: Callable[[], Attend]
    platform: str
    multiple: int
    shortest: int
    dtypes: tuple[str, ...]
    sequences: int = 0
    capability: float = 0.0
    max_length: int = 0
    windows: bool = False
    drops: bool = False


class DeviceSpec(NamedTuple):
    """The devices and rows of a run, known before anything is compiled.

    Attributes:
      platform: "cpu", "gpu" or "tpu".
      capability: the compute capability of a GPU, otherwise 0.
      length: the length of the longest rows.
      sequences: the most sequences in one row.
    """

    platform: str
    capability: float
    length: int
    sequences: int


class AttentionConfig(Protocol):
    """The part of an encoder's config that the choice depends on."""

    @property
    def attention(self) -> str: ...
    @property
    def attention_probs_dropout_prob(self) -> float: ...
    @property
    def dtype(self) -> str: ...
    @property
    def hidden_size(self) -> int: ...
    @property
    def num_attention_heads(self) -> int: ...


def choose(config: AttentionConfig, spec: DeviceSpec) -> str:
    """The name of the kernel that computes an encoder's attention, or "plain".

    "auto" takes the first kernel that fits. One that fits but cannot be imported is
    left out with a warning.

    Raises:
      ValueError: where the kernel that `config.attention` names does not fit or cannot
        be imported.
    """
    name = config.attention
    if name == "auto":
        return _first_fitting(config, spec)
    if name != "plain":
        problem = misfit(name, config, spec) or _import_problem(name)
        if problem:
            raise ValueError(f"attention={name!r} {problem},\nor set attention=auto")
    return name


def misfit(name: str, config: AttentionConfig, spec: DeviceSpec) -> str:
    """The reason why a kernel does not fit, with a remedy; empty where it fits."""
    kernel = KERNELS[name]
    rules = (
        *_device_rules(kernel, spec),
        *_model_rules(kernel, config),
        *_row_rules(kernel, spec),
    )
    return next((problem for fits, problem in rules if not fits), "")


def takes(name: str, query: jax.Array, mask: Mask, drops: bool = False) -> bool:
    """True if a kernel computes queries `[B, L, H, K]` under a mask.

    `drops` is True if weights are dropped.
    """
    if name not in KERNELS:
        return False
    kernel, length = KERNELS[name], query.shape[1]
    if length % kernel.multiple or length > (kernel.max_length or length):
        return False
    is_plain = mask.queries.ndim == 2 and mask.keys is None and not mask.causal
    takes_window = mask.window is None or kernel.windows
    return is_plain and takes_window and (kernel.drops or not drops)


def attend(
    name: str,
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    mask: Mask,
    rate: float = 0.0,
    dropout_key: jax.Array | None = None,
) -> jax.Array:
    """`layers.attend` by a kernel, on each device for its own rows and heads.

    Tokens of one sequence are neighbours, so that their distance in the row is that of
    their positions. Dropout draws the same weights as the plain path.

    XLA cannot partition a kernel: under a mesh that `jax.set_mesh` made known, heads
    are split over its axis "model" and rows over all others, where these divide them.
    """
    kernel, mesh = KERNELS[name].load(), jax.sharding.get_abstract_mesh()
    B, L, H, _ = query.shape
    inputs = [query, key, value, mask.queries]
    if mask.window is not None:
        kernel = functools.partial(kernel, window=mask.window)
    if dropout_key is not None:
        kernel = functools.partial(kernel, rate=rate)
        inputs += ops.counters(dropout_key, (B, H), L * L)
    if mesh.empty:
        return kernel(*inputs)

    def axes_for(size, of_model):
        axes = tuple(axis for axis in mesh.shape if (axis == "model") is of_model)
        count = math.prod(mesh.shape[axis] for axis in axes)
        return axes if size % count == 0 else None

    rows, heads = axes_for(B, of_model=False), axes_for(H, of_model=True)
    split = PartitionSpec(rows, None, heads)
    others = (PartitionSpec(rows), PartitionSpec(rows, heads), PartitionSpec())
    mapped = jax.shard_map(
        kernel,
        in_specs=(split, split, split, *others)[: len(inputs)],
        out_specs=split,
        # Pallas does not say over which axes its results vary.
        check_vma=False,
    )
    return mapped(*inputs)


def _first_fitting(config: AttentionConfig, spec: DeviceSpec) -> str:
    problems = []
    for name, kernel in KERNELS.items():
        if misfit(name, config, spec) or spec.length < kernel.shortest:
            continue
        problem = _import_problem(name)
        if not problem:
            break
        problems.append(f"attention={name!r} {problem}")
    else:
        name = "plain"
    if problems:
        warnings.warn(
            f"{'; '.join(problems)}; attention is computed by {name!r} instead",
            stacklevel=4,
        )
    return name


def _import_problem(name: str) -> str:
    """The reason why a kernel cannot be imported; empty where it can."""
    try:
        KERNELS[name].load()
    except (ImportError, AttributeError) as error:
        return (
            f"cannot be imported from jax {jax.__version__} ({error}); install a "
            "version of jax that has it"
        )
    return ""


Rule = tuple[bool, str]  # whether it holds, and the problem where it does not


def _device_rules(kernel: Kernel, spec: DeviceSpec) -> Iterator[Rule]:
    yield (
        spec.platform == kernel.platform,
        f"runs on a {kernel.platform}, but this run is on a {spec.platform}; "
        f"run it on a {kernel.platform}",
    )
    yield (
        spec.capability >= kernel.capability,
        f"needs a GPU of compute capability {kernel.capability}, but this one has "
        f"{spec.capability}; use another GPU",
    )


def _model_rules(kernel: Kernel, config: AttentionConfig) -> Iterator[Rule]:
    rate = config.attention_probs_dropout_prob
    size = config.hidden_size // config.num_attention_heads
    yield (
        config.dtype in kernel.dtypes,
        f"does not compute in dtype={config.dtype}; set dtype={kernel.dtypes[0]}",
    )
    yield (
        kernel.drops or not rate,
        f"drops no weights; set encoder.attention_probs_dropout_prob={rate} to 0",
    )
    yield (
        size % 8 == 0 and size <= 128,
        f"takes heads of a multiple of 8 up to 128, not {size}; "
        "change num_attention_heads",
    )


def _row_rules(kernel: Kernel, spec: DeviceSpec) -> Iterator[Rule]:
    max_length = kernel.max_length or spec.length
    most = kernel.sequences or spec.sequences
    yield (
        spec.length % kernel.multiple == 0,
        f"takes no rows of {spec.length} tokens; "
        f"make them a multiple of {kernel.multiple}",
    )
    yield (
        spec.length <= max_length,
        f"takes no rows of {spec.length} tokens; make them of at most {max_length}",
    )
    yield (
        spec.sequences <= most,
        f"takes no rows of {spec.sequences} sequences; prepare rows of at most {most}",
    )


# Pallas takes half a second to import, so its kernels are imported when used.


def _load_splash() -> Attend:
    from bert_jax.models.kernels import tpu

    return tpu.load_splash()


def _load_one_tile() -> Attend:
    from bert_jax.models.kernels import tpu

    return tpu.dropout_attention


# In order of preference. On rows of 128 splash starts a tile for every head of every
# row, and the scores of the plain path are not longer than a tile.
KERNELS = {
    "splash": Kernel(
        _load_splash,
        platform="tpu",
        multiple=128,
        shortest=256,
        dtypes=("bfloat16", "float32"),
        windows=True,
    ),
    "one_tile": Kernel(
        _load_one_tile,
        platform="tpu",
        multiple=128,
        shortest=256,
        dtypes=("bfloat16", "float32"),
        max_length=512,
        drops=True,
    ),
    "cudnn": Kernel(
        lambda: gpu.attend,
        platform="gpu",
        multiple=8,
        shortest=128,
        dtypes=("bfloat16", "float16"),
        sequences=1,
        capability=8.0,
    ),
    "cudnn_packed": Kernel(
        gpu.load_packed,
        platform="gpu",
        multiple=8,
        shortest=128,
        dtypes=("bfloat16", "float16"),
        sequences=gpu.PACKED,
        capability=9.0,
    ),
}
