"""One process of several that train together, as the hosts of a TPU slice do.

    python tests/training/pod.py ROWS OUT ORDER WAYS ADDRESS PROCESSES PROCESS

Trains a small BERT in all WAYS, such as fsdp:1,tensor:4 (a layout and
`model_parallel`), one after the other, and writes losses to OUT, for the first way
scores too. ORDER is that of the devices in the mesh.
"""

import dataclasses
import itertools
import json
import sys
import tempfile
from pathlib import Path

import jax
import numpy as np
import soak

from bert_jax.training import hosts, loop, sharding
from bert_jax.training.evaluation import evaluate
from bert_jax.training.program import Program
from bert_jax.training.resume import LoopState

STEPS = 10
ENCODER = dataclasses.replace(
    soak.ENCODER,
    num_attention_heads=8,
    hidden_dropout_prob=0.1,
    attention_probs_dropout_prob=0.1,
)


def devices(order: str) -> list[jax.Device]:
    """All devices: in "line", or as the hosts of 2 x 2 chips of a v5litepod-16 lie."""
    every = np.array(jax.devices())
    if order == "line":
        return every.tolist()
    # [host row, host column, row, column] -> rows of the slice.
    return every.reshape(2, 2, 2, 2).transpose(0, 2, 1, 3).ravel().tolist()


def trained(
    prepared: str, layout: str, model_parallel: int, order: str, scored: bool = True
) -> list[float]:
    """The losses of the first steps, and then the scores of the held-out rows."""
    config = soak.pretraining(
        prepared,
        encoder=ENCODER,
        layout=layout,
        model_parallel=model_parallel,
        num_steps=STEPS,
    )
    with tempfile.TemporaryDirectory() as folder:
        task = config.task.prepare(Path(folder), config.encoder, config.seed)
    program = Program(config, task, sharding.make_mesh(model_parallel, devices(order)))
    state, numbers = program.init({}), []
    batches = loop.batches(config, task, program, LoopState())
    for batch in itertools.islice(batches, STEPS):
        state, totals = program.train_step(state, batch)
        numbers.append(task.report("train", jax.device_get(totals), {})["loss"])
    if scored:
        scores, _ = evaluate(config, task, program, state.params, "eval", iter)
        numbers += scores.values()
    return numbers


def main(
    rows: str, out: str, order: str, ways: str, address: str, *numbers: str
) -> None:
    """Trains in all ways; process 0 writes."""
    sharding.FSDP_MIN_SIZE = 64  # so that small matrices are cut too
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    hosts.join(address, *map(int, numbers))
    results = {}
    for way in ways.split(","):
        layout, shared = way.split(":")
        # A program to evaluate costs half as much to compile as one to train.
        results[way] = trained(rows, layout, int(shared), order, scored=not results)
    if jax.process_index() == 0:
        Path(out).write_text(json.dumps(results))
    hosts.all_agree(True)


if __name__ == "__main__":
    main(*sys.argv[1:])
