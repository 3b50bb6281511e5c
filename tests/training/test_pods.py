"""Laws of several processes that share the copies of a model, and fail together."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import jax
import pod
import pytest
import soak

from bert_jax.training import hosts

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
import jax, numpy as np, orbax.checkpoint as ocp, pod
from bert_jax.training import hosts, sharding
from bert_jax.training.checkpoints import Checkpoints

def unreadable(handler, item):
    read = handler.restore
    def restore(self, directory, **kwargs):
        if jax.process_index() == 1 and directory.match(item):
            raise OSError(5, "Input/output error")
        return read(self, directory, **kwargs)
    handler.restore = restore

folder = sys.argv[1]
with pod.processes(2):
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
"""


def launch(*script, devices):
    """Runs a script whose processes have so many devices each; all must end well."""
    path = os.pathsep.join(map(str, (ROOT, ROOT / "tests", ROOT / "tests/training")))
    started = subprocess.Popen(
        [sys.executable, *map(str, script)],
        cwd=ROOT,
        env={
            **os.environ,
            "XLA_FLAGS": f"{os.environ['XLA_FLAGS']} --{soak.DEVICES}={devices}",
            "PYTHONPATH": path,
        },
        text=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,  # so that all its processes can be ended
    )
    try:
        errors = started.communicate(timeout=1500)[1]
    except subprocess.TimeoutExpired:
        os.killpg(started.pid, signal.SIGKILL)
        raise
    assert started.returncode == 0, errors


@pytest.mark.slow
def test_a_checkpoint_that_one_process_cannot_read_is_skipped_by_both(tmp_path):
    launch("-c", UNREADABLE, tmp_path / "checkpoints", devices=2)


@pytest.fixture(scope="module")
def expected(prepared):
    """A run of one process with a copy of the model on each device."""
    return pod.trained(prepared, "replicated", 1, "line")


# A layout, the devices that share a copy of the model, and how devices are ordered.
# Those left out are others under another name, as `test_sharding.py` shows.
EVERY = [f"replicated:{shared}:line" for shared in (1, 2, 4, 8)]
EVERY += [f"fsdp:{shared}:line" for shared in (1, 2, 4)]
EVERY += [f"tensor:{shared}:line" for shared in (2, 4, 8)]
EVERY += [f"fsdp_tensor:{shared}:line" for shared in (1, 2, 4)]


# All with two processes; each process compiles each of them.
@pytest.mark.slow
@pytest.mark.parametrize(
    "processes, devices, ways",
    [
        (2, 4, EVERY),
        (4, 4, ["fsdp_tensor:4:v5e"]),
        (8, 1, ["fsdp_tensor:2:line"]),
    ],
)
def test_losses_do_not_depend_on_processes_layout_or_model_parallel(
    prepared, expected, tmp_path, processes, devices, ways
):
    out = tmp_path / "losses.json"
    args = prepared, out, processes, ",".join(ways)
    launch("tests/training/pod.py", *args, devices=devices)
    results = json.loads(out.read_text())
    assert list(results["losses"]) == ways
    for way, losses in results["losses"].items():
        assert losses == pytest.approx(expected.losses, rel=1e-4), way
    assert results["scores"] == pytest.approx(expected.scores, rel=1e-4)
