"""Laws of a run of several processes, as on a pod, over real sockets."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import soak

from bert_jax.data.prepared_rows import PreparedRows

ROOT = Path(__file__).parents[2]
STEPS = 60
FIELDS = {
    "encoder.vocab_size": 300,
    "encoder.hidden_size": 16,
    "encoder.num_hidden_layers": 1,
    "encoder.num_attention_heads": 2,
    "encoder.intermediate_size": 32,
    "encoder.max_position_embeddings": 32,
    "task.recipe.sequence_length": 32,
    "optimizer.warmup_steps": 2,
    "batch_size": 16,
    "num_steps": STEPS,
    "log_every": 1,
    "eval_every": 25,
    "checkpoint_every": 10,
}


class Processes:
    """`train.py` in `count` processes with `devices` devices each."""

    def __init__(self, rows, workdir, count, devices=1, **fields):
        with socket.socket() as free:
            free.bind(("localhost", 0))
            address = f"localhost:{free.getsockname()[1]}"
        flags = f"{os.environ['XLA_FLAGS']} --{soak.DEVICES}={devices}"
        env = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
        fields = {**FIELDS, "task.prepared": rows, **fields}
        command = [sys.executable, "train.py", f"--workdir={workdir}"]
        command += [f"--config.{name}={value}" for name, value in fields.items()]
        self.workdir, self.all = workdir, []
        for i in range(count):
            joined = [f"--coordinator_address={address}", f"--num_processes={count}"]
            joined = [*joined, f"--process_id={i}"] if count > 1 else []
            self.all.append(
                subprocess.Popen(
                    command + joined,
                    cwd=ROOT,
                    env=env,
                    text=True,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                )
            )

    def at_step(self, step):
        """Waits until a step is written down."""
        file, end = self.workdir / "metrics.jsonl", time.monotonic() + 240
        while not file.exists() or f'"step": {step},' not in file.read_text():
            assert time.monotonic() < end
            assert all(p.poll() is None for p in self.all), self.ended()
            time.sleep(0.005)
        return self

    def ended(self, seconds=240):
        """Exit status and errors of each, which end within so many seconds."""
        end = time.monotonic() + seconds
        said = [p.communicate(timeout=end - time.monotonic())[1] for p in self.all]
        return list(zip([p.returncode for p in self.all], said, strict=True))


@pytest.fixture(scope="module")
def whole(prepared, tmp_path_factory):
    """The run of one process with two devices, uninterrupted."""
    # The last batch of an evaluation is not full.
    assert len(PreparedRows(prepared, "eval")) % FIELDS["batch_size"]
    workdir = tmp_path_factory.mktemp("whole")
    assert Processes(prepared, workdir, 1, devices=2).ended()[0][0] == 0
    return workdir


def test_two_processes_do_what_one_with_two_devices_does_whatever_befalls_them(
    prepared, whole, tmp_path
):
    # One that dies ends the other, which says so.
    run = Processes(prepared, tmp_path, 2).at_step(10)
    run.all[1].kill()
    status, said = run.ended(90)[0]
    assert status != 0 and "another process of the run is gone" in said, said
    assert "start all of them again" in said and "Traceback" not in said
    # And the next is as if nothing had been.
    for status, said in Processes(prepared, tmp_path, 2).ended():
        assert status == 0, said
    assert soak.metrics(tmp_path) == soak.metrics(whole)
    for name, value in soak.weights(whole).items():
        np.testing.assert_array_equal(value, soak.weights(tmp_path)[name], name)


def test_four_processes_read_the_same_batches_and_differ_by_rounding(
    prepared, whole, tmp_path
):
    # A signal that reaches one of them stops all, at one step, which is saved.
    run = Processes(prepared, tmp_path, 4).at_step(10)
    run.all[2].send_signal(signal.SIGINT)
    for status, said in run.ended(120):
        assert status == 1 and "SIGINT: stopped at step" in said, said
    found = soak.metrics(tmp_path)
    assert len(found) >= 10
    for one, four in zip(soak.metrics(whole), found, strict=False):
        assert one.pop("split") == four.pop("split")
        assert four == pytest.approx(one, rel=1e-4)


def test_one_that_finds_no_other_says_so(tmp_path):
    command = [sys.executable, "train.py", "--hosts", f"--workdir={tmp_path}"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert found.returncode == 1 and "could not be joined" in found.stderr
    assert len(found.stderr.strip().splitlines()) <= 3, found.stderr
