"""Laws of several processes that share the copies of a model, and fail together."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import jax
import pod
import pytest
import soak

from bert_jax.training import hosts, sharding

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("error", [RuntimeError("worker killed"), SystemExit(3)])
def test_an_error_of_process_0_reaches_those_that_wait_for_it(monkeypatch, error):
    answers = []

    def all_agree(yes):
        answers.append(yes)
        return False

    def fail():
        raise error

    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(hosts, "all_agree", all_agree)
    with pytest.raises(type(error)):
        hosts.process_zero_first(fail)
    assert answers == [False]  # the other one has been told
    monkeypatch.setattr(jax, "process_index", lambda: 1)
    with pytest.raises(ValueError, match="process 0 has stopped; its message says why"):
        hosts.process_zero_first(fail)
    assert answers == [False, True]


def test_an_error_of_another_process_reaches_process_0(monkeypatch):
    answers_sent = []

    def fail():
        raise OSError("no such file here")

    monkeypatch.setattr(jax, "process_count", lambda: 2)
    answers = iter([True, False] * 2)
    monkeypatch.setattr(
        hosts, "all_agree", lambda yes: answers_sent.append(yes) or next(answers)
    )
    with pytest.raises(ValueError, match="another process has stopped"):
        hosts.process_zero_first(lambda: "rows")
    monkeypatch.setattr(jax, "process_index", lambda: 1)
    with pytest.raises(OSError, match="no such file here"):
        hosts.process_zero_first(fail)
    assert answers_sent == [True, True, True, False]


# Process 1 cannot read the arrays of checkpoint 2, and then not the record of 3 either.
UNREADABLE = """
import sys
import jax, numpy as np, orbax.checkpoint as ocp
from bert_jax.training import hosts, sharding
from bert_jax.training.checkpoints import Checkpoints

folder, address, *numbers = sys.argv[1:]
hosts.join(address, *map(int, numbers))

def unreadable(handler, item):
    read = handler.restore
    def restore(self, directory, **kwargs):
        if jax.process_index() == 1 and directory.match(item):
            raise OSError(5, "Input/output error")
        return read(self, directory, **kwargs)
    handler.restore = restore

mesh = sharding.make_mesh()
state = {"x": sharding.place_batch(np.arange(2.0) + 2 * jax.process_index(), mesh)}
shapes = {"x": jax.ShapeDtypeStruct((4,), "float32", sharding=state["x"].sharding)}

with Checkpoints(folder) as checkpoints:
    for step in (1, 2):
        checkpoints.save(step, state, {"at": step}, score=step)
unreadable(ocp.StandardCheckpointHandler, "2/state")
with Checkpoints(folder) as checkpoints:
    restored = checkpoints.restore(shapes)
    assert restored.step == 1 and len(restored.skipped) == 1, restored
    assert float(restored.state["x"].sum()) == 6
    checkpoints.save(3, state, {"at": 3}, score=3)
unreadable(ocp.JsonCheckpointHandler, "3/record")
with Checkpoints(folder) as checkpoints:
    assert checkpoints.best_step == checkpoints.newest_meta()["at"] == 1
    assert checkpoints.restore_best(shapes).step == 1
hosts.all_agree(True)
"""


def launch(*script, processes, devices):
    """Runs a script as so many processes with so many devices each; all must end."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    flags = f"{os.environ['XLA_FLAGS']} --{soak.DEVICES}={devices}"
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    env = {**os.environ, "XLA_FLAGS": flags, "PYTHONPATH": path}
    command = [sys.executable, *map(str, script), address, str(processes)]
    started = [
        subprocess.Popen(
            [*command, str(process)],
            cwd=ROOT,
            env=env,
            text=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        for process in range(processes)
    ]
    try:
        errors = [one.communicate(timeout=1500)[1] for one in started]
    finally:
        for one in started:
            one.kill()
    assert not any(one.returncode for one in started), "\n".join(errors)


@pytest.mark.slow
def test_a_checkpoint_that_one_process_cannot_read_is_skipped_by_both(tmp_path):
    launch("-c", UNREADABLE, tmp_path / "checkpoints", processes=2, devices=2)


@pytest.fixture(scope="module")
def expected(prepared):
    """Losses and scores of one process with a copy of the model on each device."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sharding, "FSDP_MIN_SIZE", 64)
        return pod.trained(prepared, "replicated", 1, "line")


LAYOUTS = ("replicated", "fsdp", "tensor", "fsdp_tensor")
FOUR, EIGHT = ["tensor:8", "fsdp:4"], ["fsdp_tensor:2"]
TWO = [f"{name}:{shared}" for name in LAYOUTS for shared in (1, 2, 4, 8)]
TWO = [way for way in TWO if way not in FOUR + EIGHT]


# Each way once: every process compiles it, for about four seconds of a core.
@pytest.mark.slow
@pytest.mark.parametrize(
    "processes, devices, order, ways",
    [
        (2, 4, "line", TWO),
        (4, 2, "line", FOUR),
        (8, 1, "line", EIGHT),
        (4, 4, "v5e", ["tensor:4"]),
    ],
)
def test_losses_do_not_depend_on_processes_layout_or_model_parallel(
    prepared, expected, tmp_path, processes, devices, order, ways
):
    out, count = tmp_path / "losses.json", {"processes": processes, "devices": devices}
    launch("tests/training/pod.py", prepared, out, order, ",".join(ways), **count)
    results = json.loads(out.read_text())
    assert list(results) == ways
    for way, numbers in results.items():
        assert len(numbers) >= pod.STEPS
        assert numbers == pytest.approx(expected[: len(numbers)], rel=1e-4), way
