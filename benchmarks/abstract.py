"""A config's pre-training step in shapes only: no parameters, on any devices."""

import contextlib
import dataclasses
import io
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from bert_jax.data import pipeline
from bert_jax.tasks.pretraining import PretrainingConfig
from bert_jax.training import sharding
from bert_jax.training.config import TrainConfig, resolve
from bert_jax.training.program import Program

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
WORD = "w"  # made-up words are w0, w1, …


def abstract(
    config: TrainConfig, devices: Sequence[Any]
) -> tuple[Program, dict[str, jax.ShapeDtypeStruct]]:
    """The run's own program on `devices`, and the shapes of one of its batches.

    Rows and vocabulary are made up, of the config's sizes, unless the config names
    prepared ones.

    Raises:
      ValueError: where train.py would refuse the config, and for other tasks, whose
        rows follow from their data.
    """
    if not isinstance(config.task, PretrainingConfig):
        raise ValueError(
            f"{type(config.task).__name__} has rows that follow from its data;\n"
            "name a recipe of pre-training, such as configs/bert_base_phase1.py"
        )
    config = resolve(config)
    mesh = sharding.make_mesh(config.model_parallel, devices)
    sharding.check_batch(config.batch_size, config.accumulation, mesh)
    with tempfile.TemporaryDirectory() as folder:
        made = config.task if config.task.prepared else _made(config, Path(folder))
        with contextlib.redirect_stdout(io.StringIO()):  # counts of made-up text
            task = made.prepare(Path(folder), config.encoder, config.seed)
        rows = pipeline.batches(task.rows["train"], batch_size=1, seed=0)
        one = next(rows)
        program = Program(config, task, mesh)
    cut = sharding.batch_sharding(mesh)
    batch = {
        name: jax.ShapeDtypeStruct(
            (config.batch_size, *x.shape[1:]), x.dtype, sharding=cut
        )
        for name, x in one.items()
    }
    return program, batch


def _made(config, folder):
    """The task on a made-up text with a vocabulary of the encoder's size."""
    size = config.encoder.vocab_size
    words = [f"{WORD}{i}" for i in range(size - len(SPECIAL))]
    (folder / "vocab.txt").write_text("\n".join([*SPECIAL, *words]))
    documents = [f"{WORD}{i} {WORD}1.\n{WORD}2 {WORD}{i}.\n" for i in range(64)]
    (folder / "text.txt").write_text("\n".join(documents))
    recipe = dataclasses.replace(config.task.recipe, held_out=0.5, dupe_factor=1)
    return dataclasses.replace(
        config.task,
        paths=(str(folder / "text.txt"),),
        format="auto",
        tokenizer=str(folder / "vocab.txt"),
        recipe=recipe,
    )
