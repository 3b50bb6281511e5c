"""Laws of the training loop, on a task without text or a model of the package."""

import dataclasses
import itertools
import json
import os
import shutil
import signal
import sys
import threading
import time

import jax
import numpy as np
import pytest
import soak
from fake_task import LineTask, LineTaskConfig, line

import bert_jax
from bert_jax.data import lock, pipeline
from bert_jax.training import hosts, loop, resume, runs, sharding
from bert_jax.training.checkpoints import Checkpoints
from bert_jax.training.config import resolve
from bert_jax.training.optimizers import OptimizerConfig
from bert_jax.training.resume import LoopState
from bert_jax.training.task import Task

MEMBERS = {name for name in vars(Task) if not name.startswith("_")}


def weights(workdir):
    with np.load(workdir / "model/line.npz") as arrays:
        return dict(arrays)


def scores(workdir):
    return json.loads((workdir / "scores.json").read_text())


def evaluated(workdir):
    lines = soak.metrics(workdir)
    return {x["step"]: x["loss"] for x in lines if x["split"] == "eval"}


def assert_same(one, other):
    """The files of two finished runs are equal bit for bit."""
    for name, value in weights(one).items():
        np.testing.assert_array_equal(value, weights(other)[name], err_msg=name)
    assert soak.metrics(one) == soak.metrics(other)
    assert scores(one) == scores(other)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nothing interrupted."""
    workdir = tmp_path_factory.mktemp("whole")
    loop.train(line(), workdir)
    return workdir


def interrupt(monkeypatch, config, workdir, after):
    """A run that receives a signal when it takes the batch after `after` others."""

    def stopping(batches):
        for number, batch in enumerate(batches):
            if number == after:
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(0.2)  # until it is noted
            yield batch

    original = sharding.prefetch
    with monkeypatch.context() as patched:
        patched.setattr(sharding, "prefetch", lambda *args: stopping(original(*args)))
        with pytest.raises(SystemExit, match=rf"SIGTERM: stopped at step {after + 1}"):
            loop.train(config, workdir)


def test_the_loop_uses_the_twelve_members_of_a_task_and_no_others(
    tmp_path, monkeypatch
):
    used = set()

    class Watched(LineTask):
        def __getattribute__(self, name):
            if not name.startswith("_"):
                used.add(name)
            return super().__getattribute__(name)

    def prepare(config, workdir, encoder, seed):
        return Watched(seed)

    monkeypatch.setattr(LineTaskConfig, "prepare", prepare)
    loop.train(line(num_steps=2, init_from="0.5"), tmp_path)
    assert len(MEMBERS) == 12 and used == MEMBERS


def test_a_run_learns_and_its_log_has_every_step(whole):
    losses = evaluated(whole)
    assert [*losses] == [4, 8, 12] and losses[12] < losses[4]
    steps = [x["step"] for x in soak.metrics(whole) if x["split"] == "train"]
    assert steps == [*range(1, 13)]
    assert np.load(whole / "eval.npy").shape == (21,)
    assert scores(whole)["scores"]["eval"]["loss"] == pytest.approx(losses[12])


@pytest.mark.parametrize("after", [1, 4, 10])
def test_an_interrupted_run_ends_as_one_that_nothing_interrupted(
    whole, tmp_path, monkeypatch, after
):
    interrupt(monkeypatch, line(), tmp_path, after)
    loop.train(line(), tmp_path)
    assert_same(whole, tmp_path)


def test_a_log_window_that_a_save_divides_is_continued(tmp_path, monkeypatch):
    config = line(log_every=6, accumulation=1, skip_spikes=6.0)
    loop.train(config, tmp_path / "whole")
    interrupt(monkeypatch, config, tmp_path / "cut", 7)
    loop.train(config, tmp_path / "cut")
    assert_same(tmp_path / "whole", tmp_path / "cut")


def test_an_interrupted_evaluation_is_repeated(whole, tmp_path, monkeypatch):
    original, evaluations = pipeline.eval_batches, itertools.count(1)

    def eval_batches(*args, **kwargs):
        for batch in original(*args, **kwargs):
            yield batch
            if next(evaluations) == 4:  # of three batches each
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(0.2)

    with monkeypatch.context() as patched:
        patched.setattr(pipeline, "eval_batches", eval_batches)
        with pytest.raises(SystemExit, match="stopped at step 8, saved"):
            loop.train(line(), tmp_path)
    assert [*evaluated(tmp_path)] == [4]
    loop.train(line(), tmp_path)
    assert_same(whole, tmp_path)


def test_loop_state_is_equal_after_json():
    state = LoopState(step=5, examples=40, evaluated=False, best_score=-0.25)
    for flag in (0.0, 1.0, 1.0, 1.0):
        totals = {"loss": (np.float32(0.1), np.float32(3))}
        state.add_step(totals | {"not_finite": (np.float32(flag), np.float32(1))}, 8)
    state.add_score(-1.0)
    again = LoopState.from_json(json.loads(json.dumps(state.to_json())))
    fields = [field.name for field in dataclasses.fields(LoopState)]
    assert vars(again).keys() == set(fields)
    jax.tree.map(np.testing.assert_array_equal, again.totals, state.totals)
    for name in set(fields) - {"totals"}:
        assert getattr(again, name) == getattr(state, name), name
    assert (again.step, again.examples, again.not_finite) == (9, 72, [7])


def test_a_complete_run_is_left_as_it_is(whole, capsys):
    before = scores(whole), soak.metrics(whole)
    loop.train(line(), whole)
    assert "this run is complete: step 12 is saved" in capsys.readouterr().out
    assert (scores(whole), soak.metrics(whole)) == before


@pytest.mark.parametrize(
    "change, field",
    [
        ({"batch_size": 16}, "batch_size: was 8, is 16"),
        ({"seed": 3}, "seed: was 0, is 3"),
        ({"task": LineTaskConfig(rows=50)}, "task.rows: was 45, is 50"),
    ],
)
def test_a_changed_config_is_refused_and_nothing_is_lost(whole, change, field):
    before = soak.metrics(whole), weights(whole)
    with pytest.raises(ValueError, match=field):
        loop.train(line(**change), whole)
    assert soak.metrics(whole) == before[0]
    jax.tree.map(np.testing.assert_array_equal, weights(whole), before[1])


def test_logging_and_retention_may_change_between_runs(whole, tmp_path, capsys):
    copy = shutil.copytree(whole, tmp_path / "copy")
    loop.train(line(log_every=3, keep=1, resume="strict"), copy)
    assert "this run is complete" in capsys.readouterr().out


def test_changed_data_is_refused(whole, monkeypatch):
    def prepare(config, workdir, encoder, seed):
        return LineTask(seed, rows=50)

    monkeypatch.setattr(LineTaskConfig, "prepare", prepare)
    with pytest.raises(ValueError, match="data.rows: was 45, is 50"):
        loop.train(line(), whole)


def test_a_run_without_progress_stops_early_and_stays_stopped(tmp_path):
    # Too small a rate to improve: the noise of float32 alone changes the loss.
    still = OptimizerConfig(learning_rate=1e-30, schedule="constant", weight_decay=0.0)
    config = line(optimizer=still, num_steps=40, patience=2)
    loop.train(config, tmp_path)
    assert [*evaluated(tmp_path)] == [4, 8, 12]
    loop.train(config, tmp_path)
    assert [*evaluated(tmp_path)] == [4, 8, 12]


def test_the_best_step_is_exported_where_the_last_is_worse(tmp_path):
    wild = OptimizerConfig(
        learning_rate=20.0, schedule="linear", warmup_steps=12, clip_norm=0.0
    )
    run = loop.train(line(optimizer=wild, export="best"), tmp_path)
    losses = evaluated(tmp_path)
    best = min(losses, key=losses.get)
    assert best != 12, "the run must get worse for this test to mean anything"
    assert run.step == best and run.score == pytest.approx(-losses[best])


def test_parameters_of_init_from_replace_initial_ones(tmp_path):
    still = OptimizerConfig(learning_rate=1e-30, schedule="constant", weight_decay=0.0)
    loop.train(line(num_steps=1, optimizer=still, init_from="0.5"), tmp_path)
    assert weights(tmp_path)["['bias']"] == np.float32(0.5)


def test_a_run_that_diverges_names_the_rows_and_keeps_its_checkpoint(
    tmp_path, monkeypatch
):
    original = LineTask.loss

    def loss(task, model, params, batch, key):
        totals, guesses = original(task, model, params, batch, key)
        # Every row beyond the tenth example has no finite loss.
        bad = (batch["example"] >= 40).any() & (key is not None)
        total, count = totals["loss"]
        return totals | {"loss": (total / jax.numpy.where(bad, 0, 1), count)}, guesses

    monkeypatch.setattr(LineTask, "loss", loss)
    with pytest.raises(ValueError, match="steps 6 to 8 are not finite") as error:
        loop.train(line(checkpoint_every=1), tmp_path)
    rows = pipeline.examples_and_rows(LineTask(0).rows["train"], 8, 0, 40, 96)[1]
    assert f"step 6 held the rows {', '.join(map(str, sorted(rows)))}" in str(
        error.value
    )
    assert "or lower optimizer.learning_rate=0.3" in str(error.value)
    with Checkpoints(tmp_path / "checkpoints") as checkpoints:
        assert checkpoints.newest_meta()["loop"]["step"] > 5


def test_a_checkpoint_identifies_the_run_and_holds_the_loop_state(whole):
    with Checkpoints(whole / "checkpoints") as checkpoints:
        meta = checkpoints.newest_meta()
    fields = {field.name for field in dataclasses.fields(resume.LoopState)}
    assert meta.keys() == {"config", "data", "tokenizer", "loop"}
    assert meta["loop"].keys() == fields and meta["loop"]["examples"] == 12 * 8


def test_each_seed_has_its_own_directory_and_the_best_model_is_copied(tmp_path):
    finished = runs.train(line(num_steps=4, seeds=2, seed=3), tmp_path)
    values = [scores(directory)["goodness"] for directory in finished.directories]
    assert [x.name for x in finished.directories] == ["seed_3", "seed_4"]
    assert finished.seed == 3 + int(np.argmax(values))
    assert finished.spread["eval"]["loss"]["values"] == [-x for x in values]
    best = finished.directories[finished.seed - 3]
    for name, value in weights(best).items():
        np.testing.assert_array_equal(value, weights(tmp_path)[name])


def test_a_run_goes_on_without_its_terminal(tmp_path, monkeypatch):
    streams = []
    for name in ("stdout", "stderr"):
        reader, writer = os.pipe()
        os.close(reader)
        streams.append(os.fdopen(writer, "w", buffering=1))
        monkeypatch.setattr(sys, name, streams[-1])
    bert_jax.train(line(), tmp_path)
    assert scores(tmp_path)["step"] == 12
    for stream in streams:
        stream.close()  # has nothing left that cannot be written


def test_two_runs_in_one_directory_at_once_are_refused(tmp_path):
    with lock.locked(tmp_path), pytest.raises(ValueError, match="is in use by process"):
        loop.train(line(), tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_file_that_another_host_shows_late_is_waited_for(tmp_path):
    file = tmp_path / "late"
    assert not hosts.appears(file, 0)
    late = threading.Timer(0.1, file.touch)
    late.start()
    assert hosts.appears(file, 10)
    late.join()


def test_a_task_that_only_follows_the_protocol_trains_by_the_public_call(
    tmp_path, capsys
):
    model = bert_jax.train(line(), tmp_path)
    assert model.params.keys() == {"kernel", "bias"}
    assert f"the model is in {tmp_path}/model" in capsys.readouterr().out


def test_a_run_owns_its_directory_once_it_has_saved_a_step(tmp_path):
    resume.write_config(resume.open_workdir(tmp_path / "run", line()), line())
    other = line(batch_size=16)
    assert resume.open_workdir(tmp_path / "run", other)  # it failed before it began
    (tmp_path / "run/checkpoints/4").mkdir(parents=True)
    message = "batch_size: was 8, is 16\n.*or accept the changes with resume='changed'"
    with pytest.raises(ValueError, match=message):
        resume.open_workdir(tmp_path / "run", other)
    assert resume.open_workdir(
        tmp_path / "run", dataclasses.replace(other, resume="changed")
    )


@pytest.mark.parametrize("name, content", [("notes.md", ""), ("config.json", "{}")])
def test_a_directory_with_files_of_other_origin_is_refused(tmp_path, name, content):
    (tmp_path / "train.log").write_text("of a scheduler")
    (tmp_path / "data").mkdir()
    resume.check_workdir(tmp_path)
    (tmp_path / name).write_text(content)
    (tmp_path / "vocab.txt").write_text("")
    with pytest.raises(ValueError, match="is not empty and no run made it: it has"):
        loop.train(line(), tmp_path)
    with pytest.raises(ValueError, match="is a file; choose another workdir"):
        loop.train(line(), tmp_path / name)


def test_a_run_without_checkpoints_is_complete_for_good(tmp_path, whole):
    run = line(keep_checkpoints=False)
    loop.train(run, tmp_path)
    assert not (tmp_path / "checkpoints").exists()
    assert_same(tmp_path, whole)
    again = loop.train(run, tmp_path)
    assert again.scores == scores(tmp_path)["scores"] and not again.models
    assert_same(tmp_path, whole)
    with pytest.raises(
        ValueError, match="num_steps: was 12, is 16(?s:.*)keep_checkpoints"
    ):
        loop.train(dataclasses.replace(run, num_steps=16, resume="changed"), tmp_path)


def test_a_rate_that_no_recipe_has_is_warned_of():
    wild = OptimizerConfig(name="adamw", learning_rate=50, schedule="constant")
    with pytest.warns(UserWarning, match="learning_rate=50 is far from the usual"):
        resolve(line(optimizer=wild))
