"""Short trainings of a small BERT over many devices, in one process or in several.

    python tests/training/pod.py ROWS OUT PROCESSES WAYS

becomes so many processes that train together, as the hosts of a TPU slice do. They
train in all WAYS, such as fsdp:1:line,tensor:4:v5e (a layout, `model_parallel` and the
order of the devices in the mesh), one after the other, and process 0 writes to OUT
the losses of each, and the scores of the last.
"""

import contextlib
import dataclasses
import itertools
import json
import os
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
import soak

from bert_jax.data.optional import tensorflow
from bert_jax.training import hosts, loop, sharding
from bert_jax.training.config import TrainConfig
from bert_jax.training.evaluation import evaluate
from bert_jax.training.program import Program
from bert_jax.training.resume import LoopState
from bert_jax.training.task import Task

STEPS = 4
# Each of eight devices may hold a head.
ENCODER = dataclasses.replace(soak.ENCODER, num_attention_heads=8)
# Below this size matrices stay whole; real ones are larger than those of tests.
FSDP_MIN_SIZE = 64


def devices(order: str) -> list[jax.Device]:
    """All devices: in "line", or as the hosts of 2 x 2 chips of a v5litepod-16 lie."""
    every = np.array(jax.devices())
    if order == "line":
        return every.tolist()
    # [host row, host column, row, column] -> rows of the slice.
    return every.reshape(2, 2, 2, 2).transpose(0, 2, 1, 3).ravel().tolist()


def program_of(
    prepared: str, layout: str, model_parallel: int, order: str = "line", **changes
) -> tuple[TrainConfig, Task, Program]:
    """A run's config, task and program."""
    config = soak.pretraining(
        prepared,
        layout=layout,
        model_parallel=model_parallel,
        num_steps=STEPS,
        **{"encoder": ENCODER, **changes},
    )
    with tempfile.TemporaryDirectory() as folder:
        task = config.task.prepare(Path(folder), config.encoder, config.seed)
    mesh = sharding.make_mesh(model_parallel, devices(order))
    return config, task, Program(config, task, mesh)


@dataclasses.dataclass
class Trained:
    """The losses of the first steps, and the state after them."""

    config: TrainConfig
    task: Task
    program: Program
    losses: list[float]
    params: dict

    @property
    def scores(self) -> dict[str, float]:
        """The scores of the held-out rows."""
        return evaluate(
            self.config, self.task, self.program, self.params, "eval", iter
        )[0]


def trained(prepared: str, layout: str, model_parallel: int, order: str) -> Trained:
    """A run of `STEPS` steps."""
    # Large batches: few of them hold all held-out rows.
    run = config, task, program = program_of(
        prepared, layout, model_parallel, order, batch_size=64
    )
    state, losses = program.init({}), []
    batches = loop.batches(config, task, program, LoopState())
    for batch in itertools.islice(batches, STEPS):
        state, totals = program.train_step(state, batch)
        losses.append(task.report("train", jax.device_get(totals), {})["loss"])
    return Trained(*run, losses, state.params)


@contextlib.contextmanager
def processes(count: int) -> Iterator[None]:
    """Becomes `count` processes that have joined; only process 0 comes out of it.

    They share the imports of this one, which take longer than many a test.
    """
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    process = next((n for n in range(1, count) if os.fork() == 0), 0)
    hosts.join(address, count, process)
    yield
    hosts.all_agree(True)
    jax.distributed.shutdown()
    if process:
        sys.exit()
    ends = [os.wait()[1] for _ in range(1, count)]
    assert not any(ends), ends


def main(rows: str, out: str, count: str, ways: str) -> None:
    """Trains in all ways; process 0 writes."""
    sharding.FSDP_MIN_SIZE = FSDP_MIN_SIZE
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    tensorflow()
    results = {}
    with processes(int(count)):
        for way in ways.split(","):
            layout, shared, order = way.split(":")
            run = trained(rows, layout, int(shared), order)
            results[way] = run.losses
        scores = run.scores
    Path(out).write_text(json.dumps({"losses": results, "scores": scores}))


if __name__ == "__main__":
    main(*sys.argv[1:])
