"""An explanation for a run that exceeds the memory of the devices."""

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import jax

from bert_jax.sizes import backward_bytes, format_bytes
from bert_jax.training import sharding
from bert_jax.training.config import TrainConfig
from bert_jax.training.program import Program
from bert_jax.training.task import Batch

# CPUs wrap their answer into INTERNAL where the call before was the one that failed.
SIGNS = ("RESOURCE_EXHAUSTED", "Out of memory")


@contextlib.contextmanager
def explain_out_of_memory(
    config: TrainConfig, program: Program, batch: Batch | None = None
) -> Iterator[None]:
    """Replaces XLA's error about a lack of memory by sizes and remedies.

    Raises:
      MemoryError: with the bytes that parameters, optimizer and, where a `batch` is
        given, the activations of its rows take on each device.
    """
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if not any(sign in str(error) for sign in SIGNS):
            raise
        raise MemoryError(explanation(config, program, batch)) from None


def explanation(config: TrainConfig, program: Program, batch: Batch | None) -> str:
    """The bytes that each part of a run takes on a device, and the fields to change."""
    parameters = on_each_device(program.state.params)
    optimizer = on_each_device(program.state.opt_state)
    limit = (jax.local_devices()[0].memory_stats() or {}).get("bytes_limit")
    rows = f"\nand {_of_rows(config, program, batch)}" if batch else ""
    return (
        f"out of memory{f' ({format_bytes(limit)} a device)' if limit else ''}: on "
        f"each device parameters take {format_bytes(parameters)}, the optimizer "
        f"{format_bytes(optimizer)}, gradients {format_bytes(parameters)}{rows}\n"
        f"raise accumulation={config.accumulation} (the result is the same), set "
        f"remat=true or layout=fsdp, or lower batch_size={config.batch_size}"
    )


def _of_rows(config, program, batch):
    parts = config.accumulation * sharding.copies(program.mesh)
    rows, length = batch["input_ids"].shape[0], batch["input_ids"].shape[-1]
    size = format_bytes(activations(config, program, batch))
    return f"the backward pass keeps {size} of {rows // parts} rows of {length} tokens"


def activations(config: TrainConfig, program: Program, batch: Batch) -> int:
    """Bytes on a device that one micro-batch keeps from forward to backward."""

    def total(params, batch):
        sums = program.loss(params, batch, jax.random.key(0))
        return sum(sum for sum, _ in sums.values())

    rows = {
        name: jax.ShapeDtypeStruct(
            (x.shape[0] // config.accumulation, *x.shape[1:]), x.dtype
        )
        for name, x in batch.items()
    }
    return backward_bytes(total, program.state.params, rows) // program.mesh.size


def on_each_device(tree: Any) -> int:
    """Bytes of the largest part that a device holds."""
    return sum(
        math.prod(x.sharding.shard_shape(x.shape)) * x.dtype.itemsize
        for x in jax.tree.leaves(tree)
    )
