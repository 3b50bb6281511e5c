"""Laws of a whole run, on a small real corpus."""

import dataclasses
import itertools
import json
import os
import pickle
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file

import bert_jax
from bert_jax.data import pipeline
from bert_jax.data.recipe import Recipe
from bert_jax.models import BertConfig
from bert_jax.tasks.pretraining import Pretraining
from bert_jax.training import sharding
from bert_jax.training.config import TrainConfig
from bert_jax.training.loop import Run
from bert_jax.training.optimizers import OptimizerConfig
from bert_jax.training.program import make_program

ROOT = Path(__file__).parent.parent
# Numbers that depend on the machine's mood.
TIMES = ("seconds", "tokens_per_second", "mfu")


@pytest.fixture(scope="session")
def prepared(tmp_path_factory):
    """Rows of Python's own language reference."""
    import pydoc_data.topics

    folder = tmp_path_factory.mktemp("corpus")
    text = "\n\n\n".join(list(pydoc_data.topics.topics.values())[:25])
    (folder / "topics.txt").write_text(text, "utf-8")
    task = Pretraining(
        paths=(str(folder / "topics.txt"),),
        format="paragraphs",
        recipe=Recipe(sequence_length=32, held_out=0.2),
    )
    task.write_rows(folder / "rows", folder / "tokenizer", vocab_size=300)
    return folder / "rows"


def config(prepared, **changes):
    fields = dict(
        encoder=BertConfig(
            vocab_size=300,
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=32,
        ),
        task=Pretraining(prepared=str(prepared), recipe=Recipe(sequence_length=32)),
        optimizer=OptimizerConfig(learning_rate=1e-3, warmup_steps=2),
        batch_size=16,
        num_steps=6,
        log_every=2,
        eval_every=3,
        checkpoint_every=3,
    )
    return TrainConfig(**{**fields, **changes})


def weights(workdir):
    return load_file(workdir / "model" / "model.safetensors")


def metrics(workdir):
    lines = [json.loads(x) for x in (workdir / "metrics.jsonl").open()]
    return [{k: v for k, v in x.items() if k not in TIMES} for x in lines]


def assert_same_run(a, b):
    for name, value in weights(a).items():
        np.testing.assert_array_equal(value, weights(b)[name], err_msg=name)
    assert metrics(a) == metrics(b)


def test_a_run_leaves_what_it_promises_and_run_again_says_it_is_complete(
    prepared, tmp_path, capsys
):
    settings = config(prepared)
    model = bert_jax.train(settings, tmp_path)
    lines = metrics(tmp_path)
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
    assert metrics(tmp_path) == lines


@pytest.mark.parametrize("accumulation", [1, 2])
def test_killed_and_resumed_equals_an_uninterrupted_run(
    prepared, tmp_path, accumulation
):
    settings = config(prepared, accumulation=accumulation, num_steps=9)
    bert_jax.train(settings, tmp_path / "whole")
    script = (
        "import sys, pickle, bert_jax\n"
        "config = pickle.loads(bytes.fromhex(sys.argv[1]))\n"
        "bert_jax.train(config, sys.argv[2])\n"
    )
    argument = pickle.dumps(dataclasses.replace(settings)).hex()
    process = subprocess.Popen(
        [sys.executable, "-c", script, argument, str(tmp_path / "killed")], cwd=ROOT
    )
    file = tmp_path / "killed" / "metrics.jsonl"
    end = time.monotonic() + 120
    while not file.exists() or '"step": 4' not in file.read_text():
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    bert_jax.train(settings, tmp_path / "killed")
    assert_same_run(tmp_path / "whole", tmp_path / "killed")


def test_sigterm_saves_and_the_next_run_goes_on_exactly(
    prepared, tmp_path, monkeypatch
):
    settings = config(prepared, checkpoint_every=100)
    bert_jax.train(settings, tmp_path / "whole")

    def stop_after(batches, count):
        for number, batch in enumerate(batches):
            if number == count:
                os.kill(os.getpid(), signal.SIGTERM)
            yield batch

    original = Run.batches
    with monkeypatch.context() as patched:
        patched.setattr(Run, "batches", lambda run: stop_after(original(run), 3))
        with pytest.raises(SystemExit, match="SIGTERM: stopped at step 4, saved"):
            bert_jax.train(settings, tmp_path / "stopped")
    bert_jax.train(settings, tmp_path / "stopped")
    for name, value in weights(tmp_path / "whole").items():
        np.testing.assert_array_equal(value, weights(tmp_path / "stopped")[name])


def test_an_evaluation_that_a_signal_ends_is_done_again(
    prepared, tmp_path, monkeypatch
):
    settings = config(prepared, checkpoint_every=2, export="best")
    bert_jax.train(settings, tmp_path / "whole")
    original, seen = pipeline.eval_batches, itertools.count()

    def stop_in_the_second(*args, **kwargs):
        rows = original(*args, **kwargs)
        if next(seen) != 1:
            return rows
        return (stop_at(2, number, row) for number, row in enumerate(rows))

    def stop_at(last, number, row):
        if number == last:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.2)  # until it is noted
        return row

    with monkeypatch.context() as patched:
        patched.setattr(pipeline, "eval_batches", stop_in_the_second)
        with pytest.raises(SystemExit, match="SIGTERM: stopped at step 6, saved"):
            bert_jax.train(settings, tmp_path / "stopped")
    assert [x["step"] for x in metrics(tmp_path / "stopped")] == [2, 3, 4, 6]
    bert_jax.train(settings, tmp_path / "stopped")
    assert_same_run(tmp_path / "whole", tmp_path / "stopped")
    scores = [tmp_path / name / "scores.json" for name in ("whole", "stopped")]
    assert scores[0].read_text() == scores[1].read_text()


def test_the_position_is_counted_in_examples_so_batches_may_change(
    prepared, tmp_path, monkeypatch
):
    settings = config(prepared, num_steps=3)
    bert_jax.train(settings, tmp_path)
    found, original = [], pipeline.batches
    monkeypatch.setattr(
        pipeline, "batches", lambda *a, **k: found.append(k) or original(*a, **k)
    )
    more = dataclasses.replace(settings, batch_size=8, num_steps=5, resume="changed")
    bert_jax.train(more, tmp_path)
    bert_jax.train(dataclasses.replace(more, num_steps=6), tmp_path)
    seen = [(k["start"], k["stop"], k["batch_size"]) for k in found]
    assert seen == [(48, 64, 8), (64, 72, 8)]


def test_a_lack_of_memory_is_explained(prepared, tmp_path):
    wide = dataclasses.replace(config(prepared).encoder, intermediate_size=2**21)
    settings = config(prepared, encoder=wide, batch_size=2**14)
    with pytest.raises(MemoryError) as raised:
        bert_jax.train(settings, tmp_path)
    lines = str(raised.value).splitlines()
    assert len(lines) <= 3
    # 2 x 16 x 2^21 in the MLP, four bytes each; Adam keeps two more of each.
    assert "parameters take 277 MB, the optimizer 554 MB" in lines[0]
    # 2^11 rows of 32 tokens, one row of 2^21 each, and several of them: terabytes.
    assert re.search(r"keeps [\d,.]+ GB of 2048 rows of 32 tokens", lines[1])
    for field in ("accumulation=1", "remat=true", "layout=fsdp", "batch_size=16384"):
        assert field in lines[2]


def test_every_layout_gives_the_same_parameters(prepared, tmp_path, monkeypatch):
    monkeypatch.setattr(sharding, "FSDP_MIN_SIZE", 64)
    layouts = {"replicated": 1, "fsdp": 1, "tensor": 2, "fsdp_tensor": 2}
    params = {}
    for layout, shared in layouts.items():
        settings = config(prepared, layout=layout, model_parallel=shared)
        task = settings.task.prepare(tmp_path, settings.encoder, settings.seed)
        program = make_program(settings, task, sharding.make_mesh(shared))
        state = program.init({})
        rows = pipeline.batches(task.source("train"), batch_size=16, seed=0)
        for batch in itertools.islice(rows, 3):
            state, _ = program.train_step(state, program.place(batch))
        params[layout] = jax.tree_util.tree_leaves_with_path(
            program.gather(state.params)
        )
    for layout in list(layouts)[1:]:
        for (path, x), (_, y) in zip(params["replicated"], params[layout], strict=True):
            # Sums over devices are taken in another order; three steps apart.
            np.testing.assert_allclose(x, y, atol=2e-5, err_msg=str(path))


def test_a_work_directory_of_another_run_is_refused_and_nothing_is_lost(
    prepared, tmp_path
):
    settings = config(prepared, num_steps=3)
    bert_jax.train(settings, tmp_path)
    before = metrics(tmp_path)
    changed = dataclasses.replace(settings, seed=5, batch_size=24)
    with pytest.raises(
        ValueError, match="batch_size: was 16, is 24; seed: was 0, is 5"
    ):
        bert_jax.train(changed, tmp_path)
    assert metrics(tmp_path) == before
    # What only changes what is said or kept is no other run.
    bert_jax.train(dataclasses.replace(settings, log_every=1, keep=1), tmp_path)


def test_a_run_that_never_began_does_not_claim_its_directory(prepared, tmp_path):
    nowhere = (str(tmp_path / "nowhere.txt"),)
    missing = Pretraining(paths=nowhere, recipe=Recipe(sequence_length=32))
    with pytest.raises(ValueError, match="no such file"):
        bert_jax.train(config(prepared, task=missing), tmp_path / "run")
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
        bert_jax.train(config(prepared, **change), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_work_directory_that_cannot_be_written_is_refused(prepared, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ValueError, match="cannot be written"):
        bert_jax.train(config(prepared), tmp_path / "file" / "run")


def test_a_vocabulary_beyond_the_embedding_is_refused(prepared, tmp_path):
    small = dataclasses.replace(config(prepared).encoder, vocab_size=299)
    with pytest.raises(ValueError, match="300 ids but encoder.vocab_size=299"):
        bert_jax.train(config(prepared, encoder=small), tmp_path)


def test_a_run_starts_from_a_published_model_with_its_heads(prepared, tmp_path):
    settings = config(prepared, num_steps=1, optimizer=OptimizerConfig())
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
