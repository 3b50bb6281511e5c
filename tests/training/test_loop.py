"""Laws of a whole run, on a small real corpus."""

import dataclasses

import jax
import numpy as np
import pytest
import soak
from soak import short

import bert_jax
from bert_jax.data.records import RowConfig
from bert_jax.tasks.pretraining import PretrainingConfig
from bert_jax.training.optimizers import OptimizerConfig


def test_a_run_writes_its_files_and_a_second_call_reports_it_complete(
    prepared, tmp_path, capsys
):
    settings = short(prepared)
    model = bert_jax.train(settings, tmp_path)
    lines = soak.metrics(tmp_path)
    assert [(x["step"], x["split"]) for x in lines] == [
        (2, "train"),
        (3, "eval"),
        (4, "train"),
        (6, "train"),
        (6, "eval"),
    ]
    scores = {"mlm_loss", "mlm_accuracy", "unigram_accuracy", "nsp_loss"}
    scores |= {"nsp_accuracy", "nsp_constant_accuracy", "loss"}
    assert scores <= lines[-1].keys()
    assert {"learning_rate", "grad_norm"} <= lines[0].keys()
    assert list((tmp_path / "tensorboard").iterdir())
    assert (tmp_path / "checkpoints" / "6").is_dir()
    assert {"config.json", "model.safetensors", "vocab.txt"} <= {
        x.name for x in (tmp_path / "model").iterdir()
    }
    assert len(model.fill_mask("the [MASK] of a class", k=4)[0]) == 4
    assert "Words hidden in text it has not seen" in capsys.readouterr().out
    bert_jax.train(settings, tmp_path)
    assert "this run is complete: step 6" in capsys.readouterr().out
    assert soak.metrics(tmp_path) == lines


def test_a_run_that_never_began_does_not_claim_its_directory(prepared, tmp_path):
    nowhere = (str(tmp_path / "nowhere.txt"),)
    missing = PretrainingConfig(paths=nowhere, recipe=RowConfig(sequence_length=32))
    with pytest.raises(ValueError, match="no such file"):
        bert_jax.train(short(prepared, task=missing), tmp_path / "run")
    assert not list((tmp_path / "run").iterdir())


@pytest.mark.parametrize(
    "change, message",
    [
        ({"batch_size": 12}, r"batch_size=12 is not a multiple of 8"),
        ({"batch_size": -5}, r"batch_size=-5; it must be at least 1"),
        ({"layout": "pipelined"}, "layout='pipelined' is unknown; choose one of"),
        ({"model_parallel": 3}, "model_parallel=3 does not divide the 8 devices"),
        ({"accumulation": 3}, "batch_size=16 is not a multiple of accumulation=3"),
    ],
)
def test_a_wrong_config_is_refused_before_anything_is_written(
    prepared, tmp_path, change, message
):
    with pytest.raises(ValueError, match=message):
        bert_jax.train(short(prepared, **change), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_work_directory_that_cannot_be_written_is_refused(prepared, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ValueError, match="cannot be written"):
        bert_jax.train(short(prepared), tmp_path / "file" / "run")


def test_a_vocabulary_beyond_the_embedding_is_refused(prepared, tmp_path):
    small = dataclasses.replace(short(prepared).encoder, vocab_size=299)
    with pytest.raises(ValueError, match="300 ids but encoder.vocab_size=299"):
        bert_jax.train(short(prepared, encoder=small), tmp_path)


@pytest.mark.slow
def test_a_run_starts_from_a_published_model_with_its_heads(prepared, tmp_path):
    settings = short(prepared, num_steps=1, optimizer=OptimizerConfig())
    first = bert_jax.train(settings, tmp_path / "first")
    again = dataclasses.replace(
        settings,
        seed=3,
        init_from=str(tmp_path / "first" / "model"),
        optimizer=OptimizerConfig(learning_rate=1e-12),
    )
    second = bert_jax.train(again, tmp_path / "second")
    for x, y in zip(
        jax.tree.leaves(first.params), jax.tree.leaves(second.params), strict=True
    ):
        np.testing.assert_allclose(x, y, atol=1e-7)
    wide = dataclasses.replace(again.encoder, intermediate_size=33)
    with pytest.raises(ValueError, match="does not fit the config"):
        bert_jax.train(dataclasses.replace(again, encoder=wide), tmp_path / "third")
