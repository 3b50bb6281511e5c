"""Attention that keeps no matrix of scores in the device's memory, for TPU and GPU.

Each kernel computes what `layers.attend` says, from the same arguments, for the rows
it takes. What it takes is data, and `choose` reads that where a run is built, so that
no module asks for a device. What padding gives may be another number, which nothing
reads, but it is finite.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

# The most sequences in a row of `cudnn_packed`, as many as recipes put there at most
# unless they say otherwise. Each costs work for all rows, also for those that lack it.
PACKED = 8


class Kernel(NamedTuple):
    """A way to compute attention, and where it can be gone.

    Attributes:
      attend: `(query, key, value, mask)`, as of `layers.attend`.
      platform: that it is compiled for, "tpu" or "gpu".
      multiple: the length of a row is one of this.
      shortest: rows below this are quicker on the plain path.
      dtypes: of the compute.
      sequences: the most in one row; 0 is any number.
      capability: the least compute capability of a GPU.
    """

    attend: Callable[..., jax.Array]
    platform: str
    multiple: int
    shortest: int
    dtypes: tuple[str, ...]
    sequences: int = 0
    capability: float = 0.0


class Place(NamedTuple):
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


def choose(config: Any, place: Place) -> str:
    """The kernel that an encoder computes attention with in some place, by name.

    "auto" takes the first that fits, or the plain path.

    Raises:
      ValueError: where the one that `config.attention` demands does not fit.
    """
    name = config.attention
    if name == "auto":
        fitting = (
            other
            for other, kernel in KERNELS.items()
            if not misfit(other, config, place) and place.length >= kernel.shortest
        )
        return next(fitting, "plain")
    if name != "plain" and (why := misfit(name, config, place)):
        raise ValueError(f"attention={name!r} {why},\nor set attention=auto")
    return name


def misfit(name: str, config: Any, place: Place) -> str:
    """Why a kernel cannot be taken and what would help; empty where it can."""
    kernel, rate = KERNELS[name], config.attention_probs_dropout_prob
    size = config.hidden_size // config.num_attention_heads
    rules = [
        (
            place.platform == kernel.platform,
            f"runs on a {kernel.platform}, and here is a {place.platform}; go there",
        ),
        (
            config.dtype in kernel.dtypes,
            f"does not compute in dtype={config.dtype}; set {kernel.dtypes[0]}",
        ),
        (
            not rate,
            f"drops no weights; set encoder.attention_probs_dropout_prob={rate} to 0",
        ),
        (
            size % 8 == 0 and size <= 128,
            f"takes heads of a multiple of 8 up to 128, not {size}; "
            "change num_attention_heads",
        ),
        (
            place.length % kernel.multiple == 0,
            f"takes no rows of {place.length} tokens; "
            f"make them a multiple of {kernel.multiple}",
        ),
        (
            kernel.sequences in (0, max(kernel.sequences, place.sequences)),
            f"takes no rows of {place.sequences} sequences; "
            f"prepare rows of at most {kernel.sequences}",
        ),
        (
            place.capability >= kernel.capability,
            f"needs a GPU of compute capability {kernel.capability}, "
            f"and this one has {place.capability}; take another",
        ),
    ]
    return next((why for holds, why in rules if not holds), "")


def takes(name: str, query: jax.Array) -> bool:
    """Whether `attend` has a kernel for rows of this length: `[B, L, H, K]`."""
    return name in KERNELS and query.shape[1] % KERNELS[name].multiple == 0


def attend(
    name: str, query: jax.Array, key: jax.Array, value: jax.Array, mask: jax.Array
) -> jax.Array:
    """`layers.attend` by a kernel, on each device for its own rows and heads.

    XLA cannot cut a kernel: under a mesh that `jax.set_mesh` made known, rows are cut
    over its axis "data" and heads over "model", where these divide them.
    """
    kernel, mesh = KERNELS[name].attend, jax.sharding.get_abstract_mesh()
    if mesh.empty:
        return kernel(query, key, value, mask)
    B, _, H, _ = query.shape
    rows = "data" if B % mesh.shape["data"] == 0 else None
    heads = "model" if H % mesh.shape["model"] == 0 else None
    cut = PartitionSpec(rows, None, heads)
    mapped = jax.shard_map(
        kernel,
        in_specs=(cut, cut, cut, PartitionSpec(rows)),
        out_specs=cut,
        # Pallas does not say over which axes what it gives varies.
        check_vma=False,
    )
    return mapped(query, key, value, mask)


def splash(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    mask: jax.Array,
    *,
    interpret: bool = False,
) -> jax.Array:
    """On TPUs: Pallas splash attention, whose segment ids are the mask.

    A tile of scores lives in the core's own memory only. Padding is a segment of its
    own: it sees padding. `interpret` computes the same on any platform.
    """
    from jax.experimental.pallas.ops.tpu import splash_attention as pallas

    _, L, H, K = query.shape
    block = max(n for n in (128, 256, 384, 512) if L % n == 0)
    kernel = pallas.make_splash_mha(
        pallas.MultiHeadMask([pallas.FullMask((L, L))] * H),
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


def cudnn(
    query: jax.Array, key: jax.Array, value: jax.Array, mask: jax.Array
) -> jax.Array:
    """On NVIDIA GPUs: cuDNN's fused attention, for masks of 1 followed by 0.

    Padding sees the sequence, as on the plain path. A row with another mask gives NaN.
    """
    lengths = mask.sum(1, dtype=jnp.int32)
    fits = (mask == (jnp.arange(mask.shape[1])[None] < lengths[:, None])).all(1)
    return jax.nn.dot_product_attention(
        _marked(query, fits),
        key,
        value,
        # Over no key at all a softmax would be NaN.
        key_value_seq_lengths=jnp.maximum(lengths, 1),
        implementation="cudnn",
    )


def cudnn_packed(
    query: jax.Array, key: jax.Array, value: jax.Array, mask: jax.Array
) -> jax.Array:
    """On NVIDIA GPUs from Hopper on: cuDNN's fused attention within each sequence.

    Sequences are runs of one value; padding is one too, and sees padding, for cuDNN
    leaves what belongs to none unwritten. A row of more than `PACKED` sequences, or
    with one value in two places, gives NaN.
    """
    # JAX makes lengths public (see `cudnn`), offsets not yet.
    from jax._src.cudnn import fused_attention_stablehlo as private

    lengths, starts, fits = runs(mask, PACKED + 1)
    return private.dot_product_attention(
        _marked(query, fits),
        key,
        value,
        q_seqlen=lengths,
        kv_seqlen=lengths,
        q_offsets=starts,
        kv_offsets=starts,
        scale=query.shape[-1] ** -0.5,
        mask_type=private.MaskType.PADDING,
    )


def runs(mask: jax.Array, most: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The runs of equal values in each row of `mask` `[B, L]`.

    Returns:
      Their lengths, int32 `[B, most]`; where they start, int32 `[B, most + 1]`, both -1
      behind the last one; and whether these are all of a row and no two of them have
      the same value but 0, bool `[B]`.
    """
    changes = mask[:, 1:] != mask[:, :-1]
    number = jnp.pad(jnp.cumsum(changes, axis=1), ((0, 0), (1, 0)))
    holds = number[:, :, None] == jnp.arange(most)[None, None]
    lengths = holds.sum(1, dtype=jnp.int32)
    starts = jnp.cumsum(lengths, axis=1, dtype=jnp.int32) - lengths
    starts = jnp.pad(
        jnp.where(lengths > 0, starts, -1), ((0, 0), (0, 1)), constant_values=-1
    )
    values = jnp.where(holds, mask[:, :, None], 0).max(1)
    same = (values[:, :, None] == values[:, None]) & (values[:, None] > 0)
    again = jnp.triu(same, 1).any((1, 2))
    fits = (number[:, -1] < most) & ~again
    return jnp.where(lengths > 0, lengths, -1), starts, fits


def _marked(query, fits):
    """NaN, which no one overlooks, in the rows that do not fit."""
    return jnp.where(fits[:, None, None, None], query, jnp.nan)


# By name, the first that fits before the others. On rows of 128 splash starts a tile
# for every head of every row, and the plain path's scores are not longer than a tile.
KERNELS = {
    "splash": Kernel(
        splash,
        platform="tpu",
        multiple=128,
        shortest=256,
        dtypes=("bfloat16", "float32"),
    ),
    "cudnn": Kernel(
        cudnn,
        platform="gpu",
        multiple=8,
        shortest=128,
        dtypes=("bfloat16", "float16"),
        sequences=1,
        capability=8.0,
    ),
    "cudnn_packed": Kernel(
        cudnn_packed,
        platform="gpu",
        multiple=8,
        shortest=128,
        dtypes=("bfloat16", "float16"),
        sequences=PACKED,
        capability=9.0,
    ),
}
