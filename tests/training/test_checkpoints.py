import contextlib
import functools
import logging
import math
import os
import resource
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
from flax import struct

from bert_jax import digests
from bert_jax.training import hosts, sharding
from bert_jax.training.checkpoints import Checkpoints
from bert_jax.training.optimizers import OptimizerConfig, make_optimizer

# After a failure TensorStore's threads call back when they like, after a test too.
pytestmark = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)

META = {"seed": 3, "examples_seen": 640, "config": {"optimizer.eps": 1e-6}}
OPTIMIZER = make_optimizer(OptimizerConfig(), 100)


class State(struct.PyTreeNode):
    step: jax.Array
    params: dict
    opt_state: tuple


def make_state(step, layout="replicated", model_parallel=1):
    """A state that differs in every leaf from that of another step."""
    rng = np.random.default_rng(step)
    params = {
        "embeddings": {"word": rng.normal(size=(1024, 64)).astype("f4")},
        "mlp": {"up": {"kernel": rng.normal(size=(64, 1024)).astype("f4")}},
        "bias": rng.normal(size=13).astype("f4"),
    }
    opt_state = jax.tree.map(lambda x: x + step, OPTIMIZER.init(params))
    state = State(jnp.int32(step), params, opt_state)
    mesh = sharding.make_mesh(model_parallel)
    return jax.device_put(state, sharding.layout(layout, state, mesh))


def abstract(state):
    return jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), state
    )


def save(directory, steps, scores=(), keep=9):
    with Checkpoints(directory, keep=keep) as checkpoints:
        for step in steps:
            score = dict(zip(steps, scores, strict=False)).get(step)
            checkpoints.save(step, make_state(step), {**META, "at": step}, score=score)


def restore(directory, like=None):
    with Checkpoints(directory) as checkpoints:
        return checkpoints.restore(abstract(like or make_state(0)))


def assert_same(got, expected):
    assert jax.tree.structure(got) == jax.tree.structure(expected)
    jax.tree.map(np.testing.assert_array_equal, got, expected)


def steps_on_disk(directory):
    return sorted(int(p.name) for p in directory.iterdir() if p.name.isdigit())


def test_a_restored_state_equals_the_saved_one_bit_for_bit(tmp_path):
    save(tmp_path, [5])
    restored = restore(tmp_path)
    assert_same(restored.state, make_state(5))
    assert restored.step == 5 and restored.skipped == []
    assert restored.meta == {**META, "at": 5}


def test_an_absent_directory_restores_nothing(tmp_path):
    assert restore(tmp_path / "new") is None


def test_a_relative_directory_works(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save("here", [5])
    assert steps_on_disk(tmp_path / "here") == [5]


@pytest.mark.parametrize("layout", ["replicated", "fsdp"])
def test_a_state_may_be_donated_while_it_is_written(tmp_path, layout):
    state = make_state(1, layout)
    places = jax.tree.map(lambda x: x.sharding, state)

    @functools.partial(jax.jit, donate_argnums=0, out_shardings=places)
    def step(state):
        return jax.tree.map(lambda x: x + 1, state)

    state = step(state)
    expected = jax.tree.map(np.array, state)
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, state, META)
        for _ in range(3):
            state = step(state)
        jax.block_until_ready(state)
        checkpoints.wait()
        assert_same(checkpoints.restore(abstract(state)).state, expected)


def test_a_restored_state_may_be_donated(tmp_path):
    save(tmp_path, [5])
    step = jax.jit(lambda s: jax.tree.map(lambda x: x + 1, s), donate_argnums=0)
    expected = jax.tree.map(lambda x: x + 1, make_state(5))
    assert_same(step(restore(tmp_path).state), expected)


def test_another_layout_reads_the_same_numbers(tmp_path):
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(5, make_state(5, "fsdp"), META)
    like = make_state(0, "tensor", model_parallel=4)
    state = restore(tmp_path, like).state
    assert_same(state, make_state(5))
    assert [x.sharding for x in jax.tree.leaves(state)] == [
        x.sharding for x in jax.tree.leaves(like)
    ]


# Damage.


def array_file(directory, step):
    files = (directory / str(step) / "state").rglob("*")
    return max((p for p in files if p.is_file()), key=lambda p: p.stat().st_size)


def truncate(path):
    os.truncate(path, path.stat().st_size // 2)


def flip_a_bit(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


DAMAGE = {
    "truncated arrays": lambda d: truncate(array_file(d, 8)),
    "flipped bit in the arrays": lambda d: flip_a_bit(array_file(d, 8)),
    "missing arrays": lambda d: array_file(d, 8).unlink(),
    "missing manifest": lambda d: (d / "8/state/manifest.ocdbt").unlink(),
    "truncated record": lambda d: truncate(d / "8/record/metadata"),
    "flipped bit in the record": lambda d: flip_a_bit(d / "8/record/metadata"),
    "missing record": lambda d: (d / "8/record/metadata").unlink(),
    "empty directory": lambda d: [shutil.rmtree(d / "8"), (d / "8").mkdir()],
    "another step's arrays": lambda d: [
        shutil.rmtree(d / "8/state"),
        shutil.copytree(d / "5/state", d / "8/state"),
    ],
    "another step": lambda d: [
        shutil.rmtree(d / "8"),
        shutil.copytree(d / "5", d / "8"),
    ],
}


@pytest.fixture(scope="module")
def two_steps(tmp_path_factory):
    directory = tmp_path_factory.mktemp("checkpoints")
    save(directory, [5, 8])
    return directory


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_checkpoint_is_skipped_and_named(two_steps, tmp_path, damage, caplog):
    directory = shutil.copytree(two_steps, tmp_path / "copy")
    DAMAGE[damage](directory)
    restored = restore(directory)
    assert restored.step == 5
    assert_same(restored.state, make_state(5))
    (line,) = restored.skipped
    assert line.startswith("checkpoint 8 is damaged: ") and "\n" not in line
    assert caplog.text == ""


def test_a_flipped_bit_is_reported_with_its_array(two_steps, tmp_path):
    directory = shutil.copytree(two_steps, tmp_path / "copy")
    flip_a_bit(array_file(directory, 8))
    (line,) = restore(directory).skipped
    assert line.endswith(" changed since it was saved")
    assert "params/" in line or "/mu/" in line or "/nu/" in line


def test_an_empty_directory_does_not_count_as_the_newest_step(two_steps, tmp_path):
    directory = shutil.copytree(two_steps, tmp_path / "copy")
    (directory / "11").mkdir()
    with Checkpoints(directory) as checkpoints:
        assert checkpoints.newest_meta()["at"] == 8
        assert checkpoints.restore(abstract(make_state(0))).step == 8


def test_a_save_that_was_cut_off_leaves_nothing(two_steps, tmp_path):
    directory = shutil.copytree(two_steps, tmp_path / "copy")
    (directory / "8").rename(directory / "8.orbax-checkpoint-tmp")
    restored = restore(directory)
    assert restored.step == 5 and restored.skipped == []
    save(directory, [11])
    assert sorted(p.name for p in directory.iterdir()) == ["11", "5"]


def test_a_skipped_step_is_saved_again_and_the_damaged_one_moved_aside(
    two_steps, tmp_path
):
    directory = shutil.copytree(two_steps, tmp_path / "copy")
    truncate(array_file(directory, 8))
    with Checkpoints(directory) as checkpoints:
        checkpoints.restore(abstract(make_state(0)))
        checkpoints.save(8, make_state(8), META)
    assert steps_on_disk(directory) == [5, 8]
    assert (directory / "8.damaged-0").is_dir()
    assert restore(directory).step == 8


def test_when_all_are_damaged_the_run_does_not_start_from_the_beginning(
    two_steps, tmp_path
):
    directory = shutil.copytree(two_steps, tmp_path / "copy")
    for step in (5, 8):
        truncate(array_file(directory, step))
    with pytest.raises(ValueError, match="all checkpoints in .* are damaged; move"):
        restore(directory)
    assert steps_on_disk(directory) == [5, 8]


def test_a_state_of_another_shape_is_refused_and_not_reported_as_damage(two_steps):
    other = make_state(0)
    other.params["bias"] = jnp.zeros(11)
    with pytest.raises(ValueError, match="does not fit the config") as error:
        restore(two_steps, jax.device_put(other))
    assert "params/bias is float32[13] there and float32[11] here" in str(error.value)
    assert len(str(error.value).splitlines()) <= 3


# What is kept.


def test_the_newest_checkpoints_are_kept(tmp_path):
    save(tmp_path, [1, 2, 3, 4], keep=2)
    assert steps_on_disk(tmp_path) == [3, 4]


def test_the_best_step_is_never_deleted(tmp_path):
    save(tmp_path, [1, 2, 3, 4], scores=[math.nan, 0.7, 0.3, math.inf], keep=1)
    assert steps_on_disk(tmp_path) == [2, 4]
    # Nor by a later process, which has to read the scores.
    save(tmp_path, [5, 6], scores=[0.6, 0.2], keep=1)
    assert steps_on_disk(tmp_path) == [2, 6]
    save(tmp_path, [7, 8], scores=[0.8, 0.2], keep=1)
    assert steps_on_disk(tmp_path) == [7, 8]


def test_the_last_verified_step_is_never_deleted(tmp_path):
    save(tmp_path, [1, 2])
    with Checkpoints(tmp_path, keep=1) as checkpoints:
        assert checkpoints.restore(abstract(make_state(0))).step == 2
        for step in (3, 4, 5):
            checkpoints.save(step, make_state(step), META)
    assert steps_on_disk(tmp_path) == [2, 5]


# Failure.


@contextlib.contextmanager
def files_of_at_most(size):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_failed_save_is_an_error_of_one_line_and_older_checkpoints_stay(
    tmp_path, caplog
):
    caplog.set_level(logging.WARNING)
    with Checkpoints(tmp_path, keep=1) as checkpoints:
        checkpoints.save(1, make_state(1), META, score=0.1)
        checkpoints.wait()
        with files_of_at_most(20_000):
            checkpoints.save(2, make_state(2), META, score=0.2)
            with pytest.raises(OSError, match="checkpoint 2 could not be") as error:
                checkpoints.wait()
        assert len(str(error.value).splitlines()) == 1
        assert caplog.text == ""
        assert checkpoints.best_step == 1
        checkpoints.save(3, make_state(3), META)
    assert steps_on_disk(tmp_path) == [1, 3]


def test_a_failed_save_is_reported_by_the_next_check(tmp_path):
    with Checkpoints(tmp_path) as checkpoints:
        with files_of_at_most(20_000):
            checkpoints.save(2, make_state(2), META)
            with pytest.raises(OSError, match="checkpoint 2 could not be written"):
                while True:
                    checkpoints.check()
        checkpoints.check()


def test_a_step_is_written_once(tmp_path):
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, make_state(1), META)
        with pytest.raises(OSError, match="checkpoint 1 .* already exists"):
            checkpoints.save(1, make_state(1), META)


# Digests.


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32", "uint8", "bool"])
def test_every_flipped_bit_changes_the_digest(dtype):
    x = np.asarray(jnp.arange(15).reshape(3, 5).astype(dtype))
    before = int(digests.digest(x))
    for bit in range(1 if dtype == "bool" else 8 * x.dtype.itemsize):
        for place in (0, 7, 14):
            raw = x.copy()
            byte = raw.view("u1").reshape(-1)
            byte[place * x.dtype.itemsize + bit // 8] ^= 1 << (bit % 8)
            assert int(digests.digest(raw)) != before


def test_swapped_numbers_change_the_digest():
    x = np.arange(15, dtype="f4").reshape(3, 5)
    assert int(digests.digest(x)) != int(digests.digest(x[::-1]))
    assert int(digests.digest(x)) != int(digests.digest(x[:, ::-1]))


def test_the_digest_is_the_same_in_every_layout():
    state = make_state(3)
    for layout, model_parallel in (("fsdp", 1), ("tensor", 4), ("fsdp_tensor", 2)):
        other = make_state(3, layout, model_parallel)
        assert digests.leaves(other) == digests.leaves(state)


def test_the_digest_equals_its_documented_sum():
    x = np.random.default_rng(0).normal(size=(3, 5, 7)).astype("f4")
    words = x.view("u4").reshape(-1).astype(object)
    expected = sum(w * (2 * i + 1) for i, w in enumerate(words)) % 2**32
    assert int(digests.digest(x)) == expected


# Several processes, of which this is one.


@pytest.fixture
def events(monkeypatch):
    """Joint actions of all processes, in order; the others agree with this one."""
    seen = []
    compute = digests.leaves

    def all_agree(yes):
        seen.append(yes)
        return yes

    def leaves(tree):
        seen.append("digests")
        return compute(tree)

    monkeypatch.setattr(hosts, "all_agree", all_agree)
    monkeypatch.setattr(digests, "leaves", leaves)
    return seen


def test_a_process_that_cannot_read_says_so_before_any_computes_digests(
    tmp_path, events, monkeypatch
):
    save(tmp_path, [5, 9])
    read = ocp.StandardCheckpointHandler.restore

    def restore_arrays(handler, directory, **kwargs):
        if directory.parent.name == "9":
            raise OSError(5, "Input/output error")
        return read(handler, directory, **kwargs)

    monkeypatch.setattr(ocp.StandardCheckpointHandler, "restore", restore_arrays)
    with Checkpoints(tmp_path) as checkpoints:
        events.clear()
        restored = checkpoints.restore(abstract(make_state(0)))
    assert events == [True, False, True, True, "digests"]
    assert restored.step == 5
    assert "its arrays cannot be read (OSError: [Errno 5]" in restored.skipped[0]


def test_what_another_process_cannot_read_is_skipped_before_digests(
    tmp_path, events, monkeypatch
):
    save(tmp_path, [5, 9])
    with Checkpoints(tmp_path) as checkpoints:
        answers = iter([True, False, True, True])
        events.clear()
        monkeypatch.setattr(hosts, "all_agree", lambda yes: next(answers))
        restored = checkpoints.restore(abstract(make_state(0)))
    assert (restored.step, events) == (5, ["digests"])
    assert (
        "checkpoint 9 is damaged: its arrays cannot be read by another process"
        in (restored.skipped[0])
    )


def test_metadata_and_scores_are_those_that_every_process_can_read(
    tmp_path, monkeypatch
):
    save(tmp_path, [5, 9], scores=[0.1, 0.7])
    answers = iter([True, False, False, True])
    monkeypatch.setattr(hosts, "all_agree", lambda yes: next(answers))
    with Checkpoints(tmp_path) as checkpoints:
        assert checkpoints.best_step == 5
        assert checkpoints.newest_meta()["at"] == 5
