"""Laws of runs that something befalls: signals, other devices, lost directories."""

import dataclasses
import itertools
import os
import re
import shutil
import signal
import time

import numpy as np
import pytest
import soak
from soak import short

import bert_jax
from bert_jax.data import pipeline
from bert_jax.training import sharding
from bert_jax.training.loop import Run


def test_killed_three_times_a_run_is_equal_to_the_bit(prepared, tmp_path):
    settings = soak.pretraining(
        prepared, num_steps=200, accumulation=2, skip_spikes=6.0
    )
    soak.soak(settings, tmp_path, 3, signals=[signal.SIGKILL], within=0.5)


def test_killed_three_times_fine_tuning_is_equal_to_the_bit(tmp_path):
    settings = soak.fine_tuning(tmp_path, num_steps=200)
    soak.soak(settings, tmp_path, 3, signals=[signal.SIGKILL], within=0.5, damages=0.5)


def stop_after(monkeypatch, settings, workdir, count):
    """Runs `settings` until a signal comes in so many steps."""

    def stopping(batches):
        for number, batch in enumerate(batches):
            if number == count:
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(0.2)  # until it is noted
            yield batch

    original = Run.batches
    with monkeypatch.context() as patched:
        patched.setattr(Run, "batches", lambda run: stopping(original(run)))
        with pytest.raises(
            SystemExit, match=f"SIGTERM: stopped at step {count + 1}, saved"
        ):
            bert_jax.train(settings, workdir)


def test_sigterm_saves_and_the_next_run_goes_on_exactly(
    prepared, tmp_path, monkeypatch
):
    settings = short(prepared, checkpoint_every=100)
    bert_jax.train(settings, tmp_path / "whole")
    stop_after(monkeypatch, settings, tmp_path / "stopped", 3)
    bert_jax.train(settings, tmp_path / "stopped")
    for name, value in soak.weights(tmp_path / "whole").items():
        np.testing.assert_array_equal(value, soak.weights(tmp_path / "stopped")[name])


def test_an_evaluation_that_a_signal_ends_is_done_again(
    prepared, tmp_path, monkeypatch
):
    settings = short(prepared, checkpoint_every=2, export="best")
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
    assert [x["step"] for x in soak.metrics(tmp_path / "stopped")] == [2, 3, 4, 6]
    bert_jax.train(settings, tmp_path / "stopped")
    soak.assert_same_run(settings, tmp_path / "whole", tmp_path / "stopped")


def test_another_layout_and_another_number_of_devices_go_on_with_the_run(
    prepared, tmp_path, monkeypatch
):
    monkeypatch.setattr(sharding, "FSDP_MIN_SIZE", 64)
    settings = short(prepared, log_every=1)
    bert_jax.train(settings, tmp_path / "whole")
    for name in ("cut", "single"):
        stop_after(monkeypatch, settings, tmp_path / name, 2)
    cut = dataclasses.replace(
        settings, layout="fsdp_tensor", model_parallel=2, resume="changed"
    )
    bert_jax.train(cut, tmp_path / "cut")
    assert soak.start(settings, tmp_path / "single").wait() == 0
    for name in ("cut", "single"):
        # The loss of each step depends on its rows, masks and dropout.
        for one, other in zip(
            soak.metrics(tmp_path / "whole"), soak.metrics(tmp_path / name), strict=True
        ):
            assert one.pop("split") == other.pop("split")
            assert other == pytest.approx(one, rel=1e-4), name
        for path, value in soak.weights(tmp_path / "whole").items():
            np.testing.assert_allclose(
                value, soak.weights(tmp_path / name)[path], atol=2e-5, err_msg=path
            )


def test_a_damaged_checkpoint_is_made_again_and_refused_where_one_is_strict(
    prepared, tmp_path, capsys
):
    settings = short(prepared)
    bert_jax.train(settings, tmp_path / "whole")
    shutil.copytree(tmp_path / "whole", tmp_path / "damaged")
    checkpoints = tmp_path / "damaged" / "checkpoints"
    (checkpoints / "6/state/manifest.ocdbt").write_bytes(b"")
    strict = dataclasses.replace(settings, resume="strict")
    with pytest.raises(ValueError, match="checkpoint 6 is damaged: "):
        bert_jax.train(strict, tmp_path / "damaged")
    assert {path.name for path in checkpoints.iterdir()} == {"3", "6"}
    bert_jax.train(settings, tmp_path / "damaged")
    said = capsys.readouterr().out
    assert "checkpoint 6 is damaged: " in said and "resumes: step 3 is saved" in said
    soak.assert_same_run(settings, tmp_path / "whole", tmp_path / "damaged")
    assert (checkpoints / "6.damaged-0").is_dir()


def test_a_directory_that_goes_away_ends_the_run_in_one_line(
    prepared, tmp_path, monkeypatch
):
    original = Run.after

    def after(run, step, state):
        if step == 5:
            run.checkpoints.wait()
            shutil.rmtree(tmp_path / "checkpoints")
            (tmp_path / "checkpoints").write_text("in the way")
        return original(run, step, state)

    monkeypatch.setattr(Run, "after", after)
    with pytest.raises(OSError, match="checkpoint 6 could not be written") as raised:
        bert_jax.train(short(prepared), tmp_path)
    assert len(str(raised.value).splitlines()) == 1


def test_parameters_that_do_not_fit_are_explained_too(prepared, tmp_path):
    wide = dataclasses.replace(short(prepared).encoder, intermediate_size=2**30)
    with pytest.raises(MemoryError, match=r"parameters take 141\.\d GB") as raised:
        bert_jax.train(short(prepared, encoder=wide), tmp_path)
    assert len(str(raised.value).splitlines()) <= 3


def test_the_position_is_counted_in_examples_so_batches_may_change(
    prepared, tmp_path, monkeypatch
):
    settings = short(prepared, num_steps=3)
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
    wide = dataclasses.replace(short(prepared).encoder, intermediate_size=2**19)
    settings = short(prepared, encoder=wide, batch_size=2**14)
    with pytest.raises(MemoryError) as raised:
        bert_jax.train(settings, tmp_path)
    lines = str(raised.value).splitlines()
    assert len(lines) <= 3
    # 2 x 16 x 2^19 in the MLP, four bytes each; Adam keeps two more of each.
    assert "parameters take 69.2 MB, the optimizer 138 MB" in lines[0]
    # 2^11 rows of 32 tokens, one row of 2^19 each, and several of them.
    assert re.search(r"keeps [\d,.]+ GB of 2048 rows of 32 tokens", lines[1])
    for field in ("accumulation=1", "remat=true", "layout=fsdp", "batch_size=16384"):
        assert field in lines[2]
