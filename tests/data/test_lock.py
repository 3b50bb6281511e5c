"""Laws of the lock of a directory."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from bert_jax import tokenizers
from bert_jax.data import lock
from bert_jax.data.records import RowConfig
from bert_jax.tasks.pretraining import PretrainingConfig

ROOT = Path(__file__).parents[2]
HOLDER = """
import pathlib, sys, time
from bert_jax.data import lock
with lock.locked(pathlib.Path(sys.argv[1])):
    print("has it", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(lock, "HEARTBEAT", 0.05)


def test_a_directory_is_locked_until_its_process_ends_however_it_ends(tmp_path):
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout.readline() == "has it\n"
        message = f"{tmp_path} is in use by process {holder.pid} on .*; wait until"
        with pytest.raises(ValueError, match=message), lock.locked(tmp_path):
            pass
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    for _ in range(2):
        with lock.locked(tmp_path):
            assert (
                (tmp_path / lock.FILE)
                .read_text()
                .startswith(f"process {os.getpid()} on ")
            )
        assert not list(tmp_path.iterdir())


def test_one_process_has_a_directory_once(tmp_path):
    with lock.locked(tmp_path):
        with pytest.raises(ValueError, match="in use by"), lock.locked(tmp_path):
            pass


def test_a_vocabulary_is_learnt_by_one_process_alone(tmp_path, monkeypatch):
    (tmp_path / "text.txt").write_text("a b\n\nc d\n" * 9)
    recipe = RowConfig(pairs="none")
    task = PretrainingConfig(paths=(str(tmp_path / "text.txt"),), recipe=recipe)
    where = tmp_path / "rows", tmp_path / "rows.tokenizer"

    def second_process(*_):
        monkeypatch.setattr(tokenizers, "train", lambda *_: pytest.fail("learns, too"))
        task.write_rows(*where, vocab_size=60, processes=1)

    monkeypatch.setattr(tokenizers, "train", second_process)
    with pytest.raises(ValueError, match="rows.tokenizer is in use by process"):
        task.write_rows(*where, vocab_size=60, processes=1)


@pytest.mark.parametrize("server_keeps_lock", [False, True])
def test_a_machine_that_is_gone_is_no_obstacle(
    tmp_path, quick, monkeypatch, server_keeps_lock
):
    monkeypatch.setattr(lock, "GONE", 0.2)
    (tmp_path / lock.FILE).write_text("process 1 on another")
    if server_keeps_lock:  # as a server may keep the lock of a machine that was deleted
        answers = iter([False, True])
        monkeypatch.setattr(lock, "_try_lock", lambda file: next(answers))
    with lock.locked(tmp_path):
        assert f"process {os.getpid()} on" in (tmp_path / lock.FILE).read_text()


def test_a_machine_that_shows_signs_of_life_has_its_directory(tmp_path, quick):
    (tmp_path / lock.FILE).write_text("process 1 on another")
    over = threading.Event()
    life = threading.Thread(target=lock._show_life, args=(tmp_path / lock.FILE, over))
    life.start()
    with pytest.raises(ValueError, match="in use by process 1 on another; wait"):
        with lock.locked(tmp_path):
            pass
    over.set()
    life.join()


def test_the_owner_shows_signs_of_life(tmp_path, quick):
    with lock.locked(tmp_path):
        first, end = lock._touched(tmp_path / lock.FILE), time.monotonic() + 5
        while lock._touched(tmp_path / lock.FILE) == first:
            assert time.monotonic() < end
            time.sleep(0.01)
