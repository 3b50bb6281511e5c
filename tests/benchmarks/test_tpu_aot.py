"""Laws of compiling for TPUs that are not there."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest
from tiny import published

from benchmarks import report, tpu_aot
from benchmarks.abstract import abstract
from bert_jax.data.records import RowConfig
from bert_jax.models import BertConfig
from bert_jax.objectives.masking import Masking
from bert_jax.tasks.classification import ClassificationConfig
from bert_jax.tasks.embedding import EmbeddingConfig
from bert_jax.tasks.pretraining import PretrainingConfig
from bert_jax.training import sharding
from bert_jax.training.config import TrainConfig
from bert_jax.training.optimizers import OptimizerConfig

ROOT = Path(__file__).parents[2]
ENCODER = BertConfig(
    vocab_size=301,
    hidden_size=12,
    num_hidden_layers=1,
    num_attention_heads=3,
    intermediate_size=20,
    max_position_embeddings=40,
)


def config(**changes):
    task = PretrainingConfig(
        recipe=RowConfig(sequence_length=40, sequences_per_row=3),
        masking=Masking(max_predictions=7),
    )
    fields = dict(
        encoder=ENCODER,
        task=task,
        optimizer=OptimizerConfig(),
        batch_size=16,
        num_steps=9,
    )
    return TrainConfig(**{**fields, **changes})


def test_a_program_in_shapes_is_that_of_the_config():
    changed = config(layout="fsdp", model_parallel=2)
    _, program, batch = abstract(changed, jax.devices())
    assert program.mesh.devices.shape == (4, 1, 1, 2)
    word = program.state.params["encoder"]["embeddings"]["word"]
    assert word.shape == (301, 12)
    shapes = {name: x.shape for name, x in batch.items()}
    assert shapes["input_ids"] == (16, 40) and shapes["cls_positions"] == (16, 3)
    useful = report.flops(program, report.rows_of(changed, batch))
    products = 6 * (4 * 12**2 + 2 * 12 * 20) * 80 + 12 * 12 * 40 * 80
    assert useful == products + 6 * 14 * (12**2 + 12 * 301)


def test_pairs_in_shapes_are_as_long_as_rows_can_be():
    task = EmbeddingConfig(max_length=20, chunk_size=8)
    pairs = config(task=task, encoder=ENCODER)
    resolved, program, batch = abstract(pairs, jax.devices())
    rows = report.rows_of(resolved, batch)
    assert rows == report.Rows(count=16, texts=2, length=20, predictions=0)
    tokens = 16 * 2 * 20 / 8
    products = 6 * (4 * 12**2 + 2 * 12 * 20) * tokens + 12 * 12 * 20 * tokens
    assert report.flops(program, rows) == products
    program.lower(batch)


def test_what_cannot_be_compiled_is_refused():
    with pytest.raises(ValueError, match="ClassificationConfig has rows that follow"):
        abstract(config(task=ClassificationConfig()), jax.devices())
    with pytest.raises(ValueError, match="batch_size=12 is not a multiple of 8"):
        abstract(config(batch_size=12), jax.devices())
    with pytest.raises(ValueError, match="topology='v5e' is unknown; write v5e:4x4"):
        tpu_aot.slice_of("v5e")
    with pytest.raises(ValueError, match="with one of v4, v5e, v5p, v6e"):
        tpu_aot.slice_of("v9:2x2")


def test_a_program_that_does_not_fit_is_said_in_one_line():
    result = report.too_large(
        config(),
        "v5e:2x4",
        report.Rows(16, 1, 40, 7),
        used=27.5 * 2**30,
        limit=15.75 * 2**30,
    )
    assert not result["fits"]
    assert (
        report.in_table(result).splitlines()[-1] == "does not fit: 29.5 GB of 16.9 GB"
    )


@pytest.mark.tpu
@pytest.mark.parametrize("slices", [1, 2])
@pytest.mark.parametrize(
    "topology",
    ["v4:2x2x4", "v4:2x4x4", "v5p:2x2x4", "v5p:4x4x4", "v5e:4x4", "v5e:8x8"]
    + ["v6e:2x4", "v6e:8x8"],
)
def test_there_is_a_mesh_for_every_slice_and_for_two(topology, slices):
    pytest.importorskip("libtpu")
    for model_parallel in (1, 2, 4, 8):
        _, devices = tpu_aot.slice_of(topology, slices)
        mesh = sharding.make_mesh(model_parallel, devices)
        assert sharding.copies(mesh) * model_parallel == len(devices)
        assert len(set(mesh.devices.flat)) == len(devices)
        assert mesh.shape["data_z"] % slices == 0


@pytest.mark.tpu
def test_the_tpu_compiler_compiles_the_step():
    pytest.importorskip("libtpu")
    command = [sys.executable, "-m", "benchmarks.tpu_aot", "--json"]
    command += ["--config=configs/miniatures.py:2x128", "--topology=v5e:2x2"]
    command += ["--config.layout=fsdp", "--config.dtype=bfloat16"]
    command += ["--config.encoder.vocab_size=1000", "--config.batch_size=32"]
    env = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    assert not done.returncode, done.stderr
    result = json.loads(done.stdout)
    assert result["fits"] and not result["gathered_activations"]
    assert 0.5 < result["ratio"] < 2 and result["estimate"]["256"]["seconds"] > 0


@pytest.mark.tpu
def test_negatives_of_a_slice_take_one_gather_of_vectors(tmp_path):
    pytest.importorskip("libtpu")
    command = [sys.executable, "-m", "benchmarks.tpu_aot", "--json"]
    command += ["--config=configs/embed.py", "--topology=v5e:2x2"]
    command += [f"--config.init_from={published(tmp_path)}"]
    command += ["--config.task.max_length=16", "--config.batch_size=64"]
    env = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    assert not done.returncode, done.stderr
    result = json.loads(done.stdout)
    assert result["gathered_activations"] == 64 * 12 * 4
    gathers = [x for x in result["collectives"] if x["kind"] == "all-gather"]
    assert sum(x["count"] for x in gathers if x["dtype"] != "pred") == 1
    assert list(result["estimate"]) == ["4"]
