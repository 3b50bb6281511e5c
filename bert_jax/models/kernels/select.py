"""Attention that keeps no matrix of scores in the device's memory, for TPU and GPU.

Each kernel computes what `layers.attend` says, from the same arguments, for the rows
it takes. What it takes is data, and `choose` reads that where a run is built, so that
no module asks for a device. What padding gives may be another number, which nothing
reads, but it is finite.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jax.sharding import PartitionSpec

from bert_jax.models import ops
from bert_jax.models.kernels import gpu


class Kernel(NamedTuple):
    """A way to compute attention, and what it takes.

    Attributes:
      attend: `(query, key, value, mask)`, as of `layers.attend`.
      platform: that it is compiled for, "tpu" or "gpu".
      multiple: the length of a row is one of this.
      shortest: rows below this are quicker on the plain path.
      dtypes: of the compute.
      sequences: the most in one row; 0 is any number.
      capability: the least compute capability of a GPU.
      max_length: of the rows it takes; 0 is any length.
      windows: whether it takes a keyword `window`, how far a token sees.
      drops: whether it drops weights: it takes `starts`, `second` and a keyword `rate`,
        see `one_tile.attend`.
    """

    attend: Callable[..., jax.Array]
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
    """What a run knows of its devices and rows before anything is compiled.

    Attributes:
      platform: of the devices.
      capability: compute capability of a GPU, otherwise 0.
      length: of the longest rows.
      sequences: the most in one row.
    """

    platform: str
    capability: float
    length: int
    sequences: int


def choose(config: Any, spec: DeviceSpec) -> str:
    """The kernel that an encoder computes attention with on some device, by name.

    "auto" takes the first that fits, or the plain path.

    Raises:
      ValueError: where the one that `config.attention` demands does not fit.
    """
    name = config.attention
    if name == "auto":
        fitting = (
            other
            for other, kernel in KERNELS.items()
            if not misfit(other, config, spec) and spec.length >= kernel.shortest
        )
        return next(fitting, "plain")
    if name != "plain" and (why := misfit(name, config, spec)):
        raise ValueError(f"attention={name!r} {why},\nor set attention=auto")
    return name


def misfit(name: str, config: Any, spec: DeviceSpec) -> str:
    """Why a kernel cannot be taken and what would help; empty where it can."""
    known = KERNELS[name], config, spec
    rules = [*_of_devices(*known), *_of_models(*known), *_of_rows(*known)]
    return next((why for holds, why in rules if not holds), "")


def _of_devices(kernel, config, spec):
    here, least = spec.capability, kernel.capability
    yield (
        spec.platform == kernel.platform,
        f"runs on a {kernel.platform}, and here is a {spec.platform}; go there",
    )
    yield (
        here >= least,
        f"needs a GPU of compute capability {least}, and this one has {here}; "
        "take another",
    )


def _of_models(kernel, config, spec):
    rate = config.attention_probs_dropout_prob
    size = config.hidden_size // config.num_attention_heads
    yield (
        config.dtype in kernel.dtypes,
        f"does not compute in dtype={config.dtype}; set {kernel.dtypes[0]}",
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


def _of_rows(kernel, config, spec):
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


def takes(name: str, query: jax.Array, mask: Any, drops: bool = False) -> bool:
    """Whether `attend` computes `[B, L, H, K]` queries under a `layers.Mask`.

    `drops` says that weights are dropped.
    """
    if name not in KERNELS:
        return False
    kernel, length = KERNELS[name], query.shape[1]
    if length % kernel.multiple or length > (kernel.max_length or length):
        return False
    plain = mask.queries.ndim == 2 and mask.keys is None and not mask.causal
    near = mask.window is None or kernel.windows
    return plain and near and (kernel.drops or not drops)


def attend(
    name: str,
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    mask: Any,
    rate: float = 0.0,
    dropout_key: jax.Array | None = None,
) -> jax.Array:
    """`layers.attend` by a kernel, on each device for its own rows and heads.

    `mask` is a `layers.Mask`; tokens of one sequence stand side by side, so that their
    distance is that of their positions. Dropout draws what the plain path draws.

    XLA cannot cut a kernel: under a mesh that `jax.set_mesh` made known, heads are cut
    over its axis "model" and rows over all others, where these divide them.
    """
    kernel, mesh = KERNELS[name].attend, jax.sharding.get_abstract_mesh()
    B, L, H, _ = query.shape
    given = [query, key, value, mask.queries]
    if mask.window is not None:
        kernel = functools.partial(kernel, window=mask.window)
    if dropout_key is not None:
        kernel = functools.partial(kernel, rate=rate)
        given += ops.counters(dropout_key, (B, H), L * L)
    if mesh.empty:
        return kernel(*given)

    def parts(size, of_model):
        axes = tuple(axis for axis in mesh.shape if (axis == "model") is of_model)
        count = math.prod(mesh.shape[axis] for axis in axes)
        return axes if size % count == 0 else None

    rows, heads = parts(B, of_model=False), parts(H, of_model=True)
    cut = PartitionSpec(rows, None, heads)
    specs = (cut, cut, cut, *(PartitionSpec(*x) for x in ((rows,), (rows, heads), ())))
    mapped = jax.shard_map(
        kernel,
        in_specs=specs[: len(given)],
        out_specs=cut,
        # Pallas does not say over which axes what it gives varies.
        check_vma=False,
    )
    return mapped(*given)


def splash(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    mask: jax.Array,
    *,
    window: int | None = None,
    interpret: bool = False,
) -> jax.Array:
    """On TPUs: Pallas splash attention, whose segment ids are the mask.

    A tile of scores lives in the core's own memory only. Padding is a segment of its
    own: it sees padding. `interpret` computes the same on any platform.
    """
    from jax.experimental.pallas.ops.tpu import splash_attention as pallas

    _, L, H, K = query.shape
    block = max(n for n in (128, 256, 384, 512) if L % n == 0)
    near = (
        pallas.FullMask((L, L))
        if window is None
        else pallas.LocalMask((L, L), (window, window), 0)
    )
    kernel = pallas.make_splash_mha(
        pallas.MultiHeadMask([near] * H),
        block_sizes=pallas.BlockSizes(
            block_q=block,
            block_kv=block,
            block_q_dkv=block,
            block_kv_dkv=block,
            # One pass over the scores gives all three gradients.
            use_fused_bwd_kernel=True,
        ),
        head_shards=1,
        q_seq_shards=1,
        interpret=interpret,
    )

    def of_row(query, key, value, mask):
        segments = pallas.SegmentIds(mask, mask)
        return kernel(query, key, value, segment_ids=segments)

    first = (x.swapaxes(1, 2) for x in (query * K**-0.5, key, value))
    return jax.vmap(of_row)(*first, mask).swapaxes(1, 2)


def tile(*given: jax.Array, **how: Any) -> jax.Array:
    """On TPUs, with dropout of weights: `one_tile.attend`."""
    # Here, for Pallas takes half a second to import.
    from bert_jax.models.kernels import tpu

    return tpu.attend(*given, **how)


# By name, the first that fits before the others. On rows of 128 splash starts a tile
# for every head of every row, and the plain path's scores are not longer than a tile.
KERNELS = {
    "splash": Kernel(
        splash,
        platform="tpu",
        multiple=128,
        shortest=256,
        dtypes=("bfloat16", "float32"),
        windows=True,
    ),
    "one_tile": Kernel(
        tile,
        platform="tpu",
        multiple=128,
        shortest=256,
        dtypes=("bfloat16", "float32"),
        max_length=512,
        drops=True,
    ),
    "cudnn": Kernel(
        gpu.attend,
        platform="gpu",
        multiple=8,
        shortest=128,
        dtypes=("bfloat16", "float16"),
        sequences=1,
        capability=8.0,
    ),
    "cudnn_packed": Kernel(
        gpu.attend_packed,
        platform="gpu",
        multiple=8,
        shortest=128,
        dtypes=("bfloat16", "float16"),
        sequences=gpu.PACKED,
        capability=9.0,
    ),
}
