"""Laws of disturbed runs: signals, other devices, lost directories."""

import dataclasses
import itertools
import os
import re
import shutil
import signal
import threading
import time

import numpy as np
import pytest
import soak
from soak import short

import bert_jax
from bert_jax.data import pipeline
from bert_jax.training import sharding
from bert_jax.training.checkpoints import Checkpoints


@pytest.mark.slow
def test_a_pretraining_run_killed_twice_ends_bit_for_bit_equal(prepared, tmp_path):
    settings = soak.pretraining(
        prepared, num_steps=120, accumulation=2, skip_spikes=6.0
    )
    soak.soak(settings, tmp_path, 2, signals=[signal.SIGKILL])


@pytest.mark.slow
def test_a_fine_tuning_run_killed_twice_ends_bit_for_bit_equal(tmp_path):
    settings = soak.fine_tuning(tmp_path, num_steps=120)
    soak.soak(settings, tmp_path, 2, signals=[signal.SIGKILL], damages=1.0)


@pytest.fixture(scope="module")
def settings(prepared):
    """A run that logs each step and saves at steps 3 and 6."""
    return short(prepared, log_every=1, export="best")


@pytest.fixture(scope="module")
def whole(settings, tmp_path_factory):
    """The directory of such a run that nothing interrupted."""
    workdir = tmp_path_factory.mktemp("whole")
    bert_jax.train(settings, workdir)
    return workdir


@pytest.mark.slow
@pytest.mark.parametrize(
    "number",
    [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)],
)
def test_a_signal_while_a_checkpoint_is_written_loses_nothing(
    settings, whole, tmp_path, monkeypatch, capsys, number
):
    original, seen = Checkpoints.save, []

    def save(checkpoints, step, *args, **kwargs):
        original(checkpoints, step, *args, **kwargs)
        if step == 3:
            seen.append(checkpoints._manager.is_saving_in_progress())
            os.kill(os.getpid(), number)
            time.sleep(0.2)  # until it is noted

    with monkeypatch.context() as patched:
        patched.setattr(Checkpoints, "save", save)
        with pytest.raises(
            SystemExit, match=f"{number.name}: stopped at step 4, saved"
        ):
            bert_jax.train(settings, tmp_path)
    assert seen == [True]
    bert_jax.train(settings, tmp_path)
    assert "resumes: step 4 is saved" in capsys.readouterr().out
    soak.assert_same_run(settings, whole, tmp_path)


@pytest.mark.slow
def test_a_run_continues_with_another_layout_and_number_of_devices(
    settings, whole, tmp_path, monkeypatch
):
    monkeypatch.setattr(sharding, "FSDP_MIN_SIZE", 64)
    cut, single = (soak.killed(whole, tmp_path / x, 3) for x in ("cut", "single"))
    process = soak.start(settings, single)
    another = dataclasses.replace(
        settings, layout="fsdp_tensor", model_parallel=2, resume="changed"
    )
    bert_jax.train(another, cut)
    assert process.wait() == 0
    for workdir in (cut, single):
        # The loss of each step depends on its rows, masks and dropout.
        for one, other in zip(soak.metrics(whole), soak.metrics(workdir), strict=True):
            assert one.pop("split") == other.pop("split")
            assert other == pytest.approx(one, rel=1e-4), workdir.name
        for path, value in soak.weights(whole).items():
            np.testing.assert_allclose(
                value, soak.weights(workdir)[path], atol=2e-5, err_msg=path
            )


@pytest.mark.slow
def test_a_damaged_checkpoint_is_replaced_and_refused_if_strict(
    settings, whole, tmp_path, capsys
):
    workdir = shutil.copytree(whole, tmp_path / "damaged")
    checkpoints = workdir / "checkpoints"
    (checkpoints / "6/state/manifest.ocdbt").write_bytes(b"")
    strict = dataclasses.replace(settings, resume="strict")
    with pytest.raises(ValueError, match="checkpoint 6 is damaged: "):
        bert_jax.train(strict, workdir)
    assert {path.name for path in checkpoints.iterdir()} == {"3", "6"}
    bert_jax.train(settings, workdir)
    output = capsys.readouterr().out
    assert (
        "checkpoint 6 is damaged: " in output and "resumes: step 3 is saved" in output
    )
    soak.assert_same_run(settings, whole, workdir)
    assert (checkpoints / "6.damaged-0").is_dir()


def test_a_removed_directory_ends_the_run_with_one_line(
    prepared, tmp_path, monkeypatch
):
    original, steps = Checkpoints.check, itertools.count(1)

    def check(checkpoints):
        original(checkpoints)
        if next(steps) == 5:
            checkpoints.wait()
            shutil.rmtree(tmp_path / "checkpoints")
            (tmp_path / "checkpoints").write_text("in the way")

    monkeypatch.setattr(Checkpoints, "check", check)
    with pytest.raises(OSError, match="checkpoint 6 could not be written") as raised:
        bert_jax.train(short(prepared), tmp_path)
    assert len(str(raised.value).splitlines()) == 1
    # Threads of Orbax would wait five minutes for the directory; the process for them.
    waiting = [x for x in threading.enumerate() if "Signaling" in type(x).__name__]
    for thread in waiting:
        threading.Thread.join(thread, 5)
    assert not any(thread.is_alive() for thread in waiting)


@pytest.mark.slow
def test_parameters_that_do_not_fit_are_explained_too(prepared, tmp_path):
    wide = dataclasses.replace(short(prepared).encoder, intermediate_size=2**30)
    with pytest.raises(MemoryError, match=r"parameters take 141\.\d GB") as raised:
        bert_jax.train(short(prepared, encoder=wide), tmp_path)
    assert len(str(raised.value).splitlines()) <= 3


@pytest.mark.slow
def test_the_position_is_counted_in_examples_so_batches_may_change(
    settings, whole, tmp_path, monkeypatch
):
    workdir = soak.killed(whole, tmp_path / "run", 3)
    calls, original = [], pipeline.batches
    monkeypatch.setattr(
        pipeline, "batches", lambda *a, **k: calls.append(k) or original(*a, **k)
    )
    more = dataclasses.replace(settings, batch_size=8, num_steps=5, resume="changed")
    bert_jax.train(more, workdir)
    bert_jax.train(dataclasses.replace(more, num_steps=6), workdir)
    seen = [(k["start"], k["stop"], k["batch_size"]) for k in calls]
    assert seen == [(48, 64, 8), (64, 72, 8)]


@pytest.mark.slow
def test_a_lack_of_memory_is_explained(prepared, tmp_path):
    wide = dataclasses.replace(short(prepared).encoder, intermediate_size=2**17)
    settings = short(prepared, encoder=wide, batch_size=2**16)
    with pytest.raises(MemoryError) as raised:
        bert_jax.train(settings, tmp_path)
    lines = str(raised.value).splitlines()
    assert len(lines) <= 3
    # 2 x 16 x 2^17 in the MLP, four bytes each; Adam keeps two more of each.
    assert "parameters take 17.3 MB, the optimizer 34.7 MB" in lines[0]
    # 2^13 rows of 32 tokens, one row of 2^17 each, and several of them.
    assert re.search(r"keeps [\d,.]+ GB of 8192 rows of 32 tokens", lines[1])
    for field in ("accumulation=1", "remat=true", "layout=fsdp", "batch_size=65536"):
        assert field in lines[2]
