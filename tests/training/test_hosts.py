"""Laws of a run of several processes, as on a pod, over real sockets."""

import os
import re
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

pytestmark = pytest.mark.slow

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

    def __init__(self, rows, workdir, count, devices=1):
        with socket.socket() as free:
            free.bind(("localhost", 0))
            address = f"localhost:{free.getsockname()[1]}"
        flags = f"{os.environ['XLA_FLAGS']} --{soak.DEVICES}={devices}"
        env = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
        fields = {**FIELDS, "task.prepared": rows}
        command = [sys.executable, "train.py", f"--workdir={workdir}"]
        command += [f"--config.{name}={value}" for name, value in fields.items()]
        self.workdir, self.all = workdir, []
        for i in range(count):
            hosts = [f"--coordinator_address={address}", f"--num_processes={count}"]
            hosts = [*hosts, f"--process_id={i}"] if count > 1 else []
            self.all.append(
                subprocess.Popen(
                    command + hosts,
                    cwd=ROOT,
                    env=env,
                    text=True,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                )
            )

    def at_step(self, step):
        """Waits until the metrics of a step are written."""
        file, end = self.workdir / "metrics.jsonl", time.monotonic() + 240
        while not file.exists() or f'"step": {step},' not in file.read_text():
            assert time.monotonic() < end
            assert all(p.poll() is None for p in self.all), self.ended()
            time.sleep(0.005)
        return self

    def ended(self, seconds=240):
        """Exit status and errors of each process, which end within `seconds`."""
        end = time.monotonic() + seconds
        errors = [p.communicate(timeout=end - time.monotonic())[1] for p in self.all]
        return list(zip([p.returncode for p in self.all], errors, strict=True))


@pytest.fixture(scope="module")
def whole(prepared, tmp_path_factory):
    """The run of one process with two devices, uninterrupted."""
    # The last batch of an evaluation is not full.
    assert len(PreparedRows(prepared, "eval")) % FIELDS["batch_size"]
    workdir = tmp_path_factory.mktemp("whole")
    assert Processes(prepared, workdir, 1, devices=2).ended()[0][0] == 0
    return workdir


def assert_two_processes_complete(rows, workdir, whole):
    """Two processes resume in `workdir` and end with the numbers of `whole`."""
    for status, errors in Processes(rows, workdir, 2).ended():
        assert status == 0, errors
    assert soak.metrics(workdir) == soak.metrics(whole)
    for name, value in soak.weights(whole).items():
        np.testing.assert_array_equal(value, soak.weights(workdir)[name], name)


def test_a_signal_to_one_of_two_processes_saves_the_step_and_the_next_run_continues(
    prepared, whole, tmp_path
):
    run = Processes(prepared, tmp_path, 2).at_step(1)
    run.all[1].send_signal(signal.SIGTERM)
    steps = set()
    for status, errors in run.ended(60):
        stop = re.search(r"SIGTERM: stopped at step (\d+), saved", errors)
        assert status == 1 and stop, errors
        steps.add(int(stop[1]))
    (step,) = steps  # both stop at the same one
    assert step < STEPS / 2 and (tmp_path / f"checkpoints/{step}").is_dir()
    assert soak.metrics(tmp_path)[-1]["step"] == step
    before = (tmp_path / "metrics.jsonl").read_text()
    assert_two_processes_complete(prepared, tmp_path, whole)
    # Times of earlier steps are unchanged too: no step was repeated.
    assert (tmp_path / "metrics.jsonl").read_text().startswith(before)


def test_the_death_of_one_of_two_processes_ends_the_other_and_the_next_run_continues(
    prepared, whole, tmp_path
):
    run = Processes(prepared, tmp_path, 2).at_step(10)
    run.all[1].kill()
    status, errors = run.ended(90)[0]
    assert status != 0 and "another process of the run is gone" in errors, errors
    assert "start all of them again" in errors and "Traceback" not in errors
    assert_two_processes_complete(prepared, tmp_path, whole)


def test_four_processes_read_the_same_batches_and_differ_by_rounding(
    prepared, whole, tmp_path
):
    # A signal to one process stops all at the same step, which is saved.
    run = Processes(prepared, tmp_path, 4).at_step(10)
    run.all[2].send_signal(signal.SIGINT)
    for status, errors in run.ended(120):
        assert status == 1 and "SIGINT: stopped at step" in errors, errors
    lines = soak.metrics(tmp_path)
    assert len(lines) >= 10
    for one, four in zip(soak.metrics(whole), lines, strict=False):
        assert one.pop("split") == four.pop("split")
        assert four == pytest.approx(one, rel=1e-4)


JOINED = """
import os, signal, socket, time
from bert_jax.training import hosts
with socket.socket() as free:
    free.bind(("localhost", 0))
    address = f"localhost:{free.getsockname()[1]}"
hosts.join(address, 1, 0)
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(60)
"""


def test_a_signal_ends_a_process_that_has_joined_and_does_not_train_yet():
    done = subprocess.run([sys.executable, "-c", JOINED], cwd=ROOT, timeout=50)
    assert done.returncode == -signal.SIGTERM


def test_a_process_that_cannot_join_the_others_ends_with_one_error(tmp_path):
    command = [sys.executable, "train.py", "--hosts", f"--workdir={tmp_path}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1 and "could not be joined" in done.stderr
    assert len(done.stderr.strip().splitlines()) <= 3, done.stderr
