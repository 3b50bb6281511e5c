"""Laws of signals, sent to real processes by the kernel."""

import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tiny import TINY, written

from bert_jax.models import BertConfig
from bert_jax.tasks.classification import ClassificationConfig
from bert_jax.training.config import TrainConfig
from bert_jax.training.signals import StopSignals, end

ROOT = Path(__file__).parents[2]

# Half a minute inside one call, where no Python handler runs.
BUSY = """
import numpy as np
from bert_jax.training.signals import StopSignals
import jax; jax.devices()
matrix = np.random.default_rng(0).normal(size=(4000, 4000))
with StopSignals() as signals:
    signals.expendable = EXPENDABLE
    print("busy", flush=True)
    np.linalg.svd(matrix)
print("not reached in time", signals.poll())
"""


def busy(expendable):
    process = subprocess.Popen(
        [sys.executable, "-c", BUSY.replace("EXPENDABLE", str(expendable))],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stdout.readline() == "busy\n"
    time.sleep(0.3)
    return process


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_a_blocked_process_at_once(number):
    process = busy(expendable=False)
    process.send_signal(number)
    time.sleep(1)
    assert process.poll() is None  # the first one is only noted
    process.send_signal(number)
    assert process.wait(5) == 128 + number
    assert "again, ended at once" in process.stderr.read()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_ends_a_process_with_nothing_to_save(number):
    process = busy(expendable=True)
    process.send_signal(number)
    assert process.wait(5) == 128 + number
    assert "there is nothing new" in process.stderr.read()


# Python drops what a destructor raises.
LOST = """
import os, runpy, signal, sys, time
from bert_jax.tasks.pretraining import PretrainingConfig

class Collected:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)

def prepare(*_):
    Collected()
    time.sleep(60)

PretrainingConfig.prepare = prepare
runpy.run_path("train.py", run_name="__main__")
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_not_lost_before_there_is_a_state(tmp_path, number):
    script = LOST.replace("SIGINT", number.name)
    command = [sys.executable, "-c", script, f"--workdir={tmp_path}"]
    process = subprocess.run(
        command, cwd=ROOT, timeout=40, capture_output=True, text=True
    )
    assert process.returncode == 128 + number
    sentence = f"{number.name}: stopped; there is nothing new"
    assert process.stderr.strip().endswith(sentence)


def noted(signals, seconds):
    """The signal that `poll` tells within some seconds."""
    end = time.monotonic() + seconds
    while not signals.poll() and time.monotonic() < end:
        time.sleep(0.01)
    return signals.poll()


def test_the_end_of_the_terminal_is_a_signal_unless_it_is_ignored(monkeypatch):
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup may run the tests
    try:
        with StopSignals() as signals:
            os.kill(os.getpid(), signal.SIGHUP)
            assert noted(signals, 10) == "SIGHUP"
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
        with StopSignals() as signals:
            os.kill(os.getpid(), signal.SIGHUP)
            assert noted(signals, 0.1) is None
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_notebook_survives_a_signal(monkeypatch, number):
    monkeypatch.setattr(sys, "ps1", "In : ", raising=False)
    with pytest.raises(KeyboardInterrupt, match="stopped; there is nothing new"):
        with StopSignals() as signals:
            signals.preparing = True
            os.kill(os.getpid(), number)
            time.sleep(1)
    with pytest.raises(KeyboardInterrupt, match="saved"):
        end("SIGTERM: stopped at step 3, saved")
    monkeypatch.delattr(sys, "ps1")
    with pytest.raises(SystemExit, match="saved"):
        end("SIGTERM: stopped at step 3, saved")


@pytest.mark.slow
def test_a_signal_ends_a_run_that_compiles(tmp_path):
    vocabulary = tmp_path / "vocab.txt"
    letters = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *map(chr, range(97, 123))]
    vocabulary.write_text("\n".join(letters))
    files = [str(written(tmp_path / f"{n}.tsv", 32, n)) for n in (0, 1)]
    config = TrainConfig(
        encoder=BertConfig(**{**vars(TINY), "num_hidden_layers": 80}),
        task=ClassificationConfig(
            train=files[0], dev=files[1], tokenizer=str(vocabulary), max_length=16
        ),
        batch_size=16,
    )
    script = (
        "import sys, pickle, bert_jax\n"
        "config = pickle.loads(bytes.fromhex(sys.argv[1]))\n"
        "bert_jax.train(config, sys.argv[2])\n"
    )
    argument, workdir = pickle.dumps(config).hex(), tmp_path / "run"
    process = subprocess.Popen(
        [sys.executable, "-c", script, argument, str(workdir)],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )
    end = time.monotonic() + 120
    while not (workdir / "tensorboard").exists():
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.01)
    time.sleep(3)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert process.wait(5) == 128 + signal.SIGTERM
    assert "SIGTERM: stopped; there is nothing new" in process.stderr.read()
    assert not (workdir / "metrics.jsonl").read_text()
