"""A config's training step in shapes only: no parameters, on any devices."""

import contextlib
import dataclasses
import io
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from bert_jax.data import pipeline
from bert_jax.tasks.embedding import EmbeddingConfig
from bert_jax.tasks.pretraining import PretrainingConfig
from bert_jax.training import sharding
from bert_jax.training.config import TrainConfig, resolve
from bert_jax.training.program import Program

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
WORD = "w"  # made-up words are w0, w1, …


def abstract(
    config: TrainConfig, devices: Sequence[Any]
) -> tuple[TrainConfig, Program, dict[str, jax.ShapeDtypeStruct]]:
    """The resolved config, the run's own program, and the shapes of one of its batches.

    Rows and vocabulary are made up, of the config's sizes, unless the config names
    prepared ones, or files to train sentence vectors on.

    Raises:
      ValueError: where train.py would refuse the config, and for other tasks, whose
        rows follow from their data.
    """
    if not isinstance(config.task, PretrainingConfig | EmbeddingConfig):
        raise ValueError(
            f"{type(config.task).__name__} has rows that follow from its data;\n"
            "name a recipe of pre-training, such as configs/bert_base_phase1.py"
        )
    with tempfile.TemporaryDirectory() as folder:
        with contextlib.redirect_stdout(io.StringIO()):  # counts of made-up text
            config = _with_rows(config, Path(folder))
            task = config.task.prepare(Path(folder), config.encoder, config.seed)
        mesh = sharding.make_mesh(config.model_parallel, devices)
        sharding.check_batch(config.batch_size, config.accumulation, mesh)
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
    return config, program, batch


def _with_rows(config, folder):
    """The resolved config, with made-up rows where it names none."""
    if isinstance(config.task, EmbeddingConfig):
        if not config.task.train:
            config = dataclasses.replace(config, task=_made_pairs(config, folder))
        return resolve(config)
    config = resolve(config)
    if config.task.prepared:
        return config
    return dataclasses.replace(config, task=_made(config, folder))


def _made_pairs(config, folder):
    """The task on pairs of texts that are made up, each as long as a row can be."""
    for name, numbers in (("train", range(64)), ("dev", range(64, 128))):
        lines = [
            "\t".join(f"{WORD}{i}{f' {end}' * config.task.max_length}" for end in "xy")
            for i in numbers
        ]
        text = "\n".join(["anchor\tpositive", *lines])
        (folder / f"{name}.tsv").write_text(text + "\n")
    files = {name: str(folder / f"{name}.tsv") for name in ("train", "dev")}
    tokenizer = config.task.tokenizer
    if not (tokenizer or config.init_from):
        tokenizer = _vocabulary(config, folder)
    return dataclasses.replace(config.task, **files, tokenizer=tokenizer, epochs=0)


def _vocabulary(config, folder):
    """A vocab.txt of the encoder's size."""
    size = config.encoder.vocab_size
    words = [f"{WORD}{i}" for i in range(size - len(SPECIAL))]
    (folder / "vocab.txt").write_text("\n".join([*SPECIAL, *words]))
    return str(folder / "vocab.txt")


def _made(config, folder):
    """The task on a made-up text with a vocabulary of the encoder's size."""
    documents = [f"{WORD}{i} {WORD}1.\n{WORD}2 {WORD}{i}.\n" for i in range(64)]
    (folder / "text.txt").write_text("\n".join(documents))
    recipe = dataclasses.replace(config.task.recipe, held_out=0.5, dupe_factor=1)
    return dataclasses.replace(
        config.task,
        paths=(str(folder / "text.txt"),),
        format="auto",
        tokenizer=_vocabulary(config, folder),
        recipe=recipe,
    )
