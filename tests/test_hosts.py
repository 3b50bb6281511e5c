"""Laws of a run of several processes, as on a pod, over real sockets."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from bert_jax.data.recipe import Recipe
from bert_jax.data.source import PreparedRows
from bert_jax.tasks.pretraining import Pretraining

ROOT = Path(__file__).parent.parent
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
TIMES = ("seconds", "tokens_per_second", "mfu")


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """Rows whose held-out part fills no whole number of batches."""
    import pydoc_data.topics

    folder = tmp_path_factory.mktemp("corpus")
    text = "\n\n\n".join(list(pydoc_data.topics.topics.values())[:25])
    (folder / "topics.txt").write_text(text, "utf-8")
    recipe = Recipe(sequence_length=32, held_out=0.2)
    task = Pretraining(paths=(str(folder / "topics.txt"),), recipe=recipe)
    task.format = "paragraphs"
    task.write_rows(folder / "rows", folder / "tokenizer", vocab_size=300)
    assert len(PreparedRows(folder / "rows", "eval")) % FIELDS["batch_size"]
    return folder / "rows"


class Processes:
    """`train.py` in `count` processes with `devices` devices each."""

    def __init__(self, rows, workdir, count, devices=1, **fields):
        with socket.socket() as free:
            free.bind(("localhost", 0))
            address = f"localhost:{free.getsockname()[1]}"
        flag = f"--xla_force_host_platform_device_count={devices}"
        env = {**os.environ, "XLA_FLAGS": flag, "JAX_PLATFORMS": "cpu"}
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


def assert_same_run(a, b):
    for name, value in weights(a).items():
        np.testing.assert_array_equal(value, weights(b)[name], err_msg=name)
    assert metrics(a) == metrics(b)


def weights(workdir):
    return load_file(workdir / "model" / "model.safetensors")


def metrics(workdir):
    lines = [json.loads(x) for x in (workdir / "metrics.jsonl").open()]
    return [{k: v for k, v in x.items() if k not in TIMES} for x in lines]


@pytest.fixture(scope="module")
def whole(rows, tmp_path_factory):
    """The run of one process with two devices, uninterrupted."""
    workdir = tmp_path_factory.mktemp("whole")
    assert Processes(rows, workdir, 1, devices=2).ended()[0][0] == 0
    return workdir


def test_two_processes_do_what_one_with_two_devices_does_whatever_befalls_them(
    rows, whole, tmp_path
):
    # A signal that reaches one of them stops both, at one step, which is saved.
    run = Processes(rows, tmp_path, 2).at_step(1)
    run.all[1].send_signal(signal.SIGTERM)
    for status, said in run.ended(60):
        assert status == 1 and "SIGTERM: stopped at step" in said, said
    # One that dies ends the other, which says so.
    stopped = metrics(tmp_path)[-1]["step"]
    assert stopped < STEPS / 2
    run = Processes(rows, tmp_path, 2).at_step(stopped + 10)
    run.all[1].kill()
    status, said = run.ended(90)[0]
    assert status != 0 and "another process of the run is gone" in said, said
    assert "start all of them again" in said and "Traceback" not in said
    # And the third is as if nothing had been.
    for status, said in Processes(rows, tmp_path, 2).ended():
        assert status == 0, said
    assert_same_run(whole, tmp_path)


def test_four_processes_read_the_same_batches_and_differ_by_rounding(
    rows, whole, tmp_path
):
    run = Processes(rows, tmp_path, 4).at_step(10)
    run.all[2].send_signal(signal.SIGINT)
    for status, said in run.ended(120):
        assert status == 1 and "SIGINT: stopped at step" in said, said
    found = metrics(tmp_path)
    assert len(found) >= 10
    for one, four in zip(metrics(whole), found, strict=False):
        assert one.pop("split") == four.pop("split")
        assert four == pytest.approx(one, rel=1e-4)


def test_one_that_finds_no_other_says_so(tmp_path):
    command = [sys.executable, "train.py", "--hosts", f"--workdir={tmp_path}"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert found.returncode == 1 and "could not be joined" in found.stderr
    assert len(found.stderr.strip().splitlines()) <= 3, found.stderr
