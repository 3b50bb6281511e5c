"""Laws of the layouts on eight devices: equal numbers, and the bytes exchanged."""

import dataclasses
import math

import jax
import numpy as np
import pod
import pytest
import soak

from benchmarks import hlo, report
from bert_jax.training import loop, sharding
from bert_jax.training.resume import LoopState

# Layout -> devices that share one copy of the model.
LAYOUTS = {"replicated": 1, "fsdp": 1, "tensor": 2, "fsdp_tensor": 2}
# Bytes of the hidden states of a batch, which no device is to hold: 16 rows of 32.
ACTIVATIONS = 4 * 16 * 32 * 16
ENCODER = dataclasses.replace(soak.ENCODER, num_hidden_layers=2)


@pytest.fixture
def small_is_large(monkeypatch):
    """Lets the small matrices of tests be sharded."""
    monkeypatch.setattr(sharding, "FSDP_MIN_SIZE", pod.FSDP_MIN_SIZE)


@pytest.fixture(scope="module")
def expected(prepared):
    return params_of(prepared, "replicated")


def params_of(prepared, layout):
    """The parameters after some steps, whole, by their paths."""
    run = pod.trained(prepared, layout, LAYOUTS[layout], "line")
    return jax.tree_util.tree_leaves_with_path(run.program.gather(run.params))


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["fsdp", "tensor", "fsdp_tensor"])
def test_some_steps_give_the_same_parameters_in_every_layout(
    prepared, expected, small_is_large, layout
):
    params = params_of(prepared, layout)
    for (path, x), (_, y) in zip(expected, params, strict=True):
        # Sums over devices are taken in another order, and Adam divides by roots.
        np.testing.assert_allclose(x, y, atol=2e-4, err_msg=str(path))


def compiled(prepared, layout, **changes):
    """The config and program of a run, and the exchanges of a step."""
    shared = LAYOUTS[layout]
    settings, task, program = pod.program_of(
        prepared, layout, shared, encoder=ENCODER, **changes
    )
    batch = next(loop.batches(settings, task, program, LoopState()))
    text = program.lower(batch).compile().as_text()
    exchanges = hlo.collectives(text)
    # Numbers of single elements, counts and norms, cost nothing.
    return settings, program, [x for x in exchanges if x.bytes > 64]


def crossing(settings, exchanges, kind):
    """Bytes of floats (no ids) that each device sends over "data"."""
    rows = report.by_kind(settings, exchanges)
    return sum(
        row["sent"]
        for row in rows
        if (row["kind"], row["axis"], row["dtype"][0]) == (kind, "data", "f")
    )


def bytes_of(program, large):
    """Bytes of the parameters that are sharded over "data", or of the others."""
    leaves = jax.tree.leaves(program.state.params)
    cut = [x for x in leaves if ("data" in x.sharding.spec) == large]
    return 4 * sum(math.prod(x.shape) for x in cut)


def test_replicated_sums_each_gradient_once(prepared):
    settings, program, exchanges = compiled(prepared, "replicated")
    sent = crossing(settings, exchanges, "all-reduce")
    least = 2 * 7 / 8 * bytes_of(program, large=False)
    word = 2 * 7 / 8 * 4 * 300 * 16  # looked up and decoded with: two sums, or one
    assert 0.98 * least < sent < 1.02 * (least + word)
    assert report.foreign(program, exchanges) < ACTIVATIONS


@pytest.mark.slow
def test_fsdp_gathers_parameters_once_and_no_activations(prepared, small_is_large):
    settings, program, exchanges = compiled(prepared, "fsdp")
    cut = bytes_of(program, large=True)
    assert cut > 9 * bytes_of(program, large=False)
    sent = crossing(settings, exchanges, "all-gather")
    assert sent == pytest.approx(7 / 8 * cut, rel=0.1)
    assert report.foreign(program, exchanges) < ACTIVATIONS


@pytest.mark.slow
def test_tensor_sums_the_activations_of_each_block_four_times(prepared):
    settings, program, exchanges = compiled(prepared, "tensor")
    rows = report.by_kind(settings, exchanges)
    sums = [r for r in rows if (r["kind"], r["axis"]) == ("all-reduce", "model")]
    # Two a block forward and two backward, and those of the tied embedding.
    of_activations = 4 * 16 / 4 * 32 * 16  # float32, rows of one copy
    assert sum(r["sent"] for r in sums) >= 4 * 2 * of_activations
    assert report.foreign(program, exchanges) < ACTIVATIONS


@pytest.mark.slow
def test_exchanges_in_a_loop_are_counted_once_per_iteration(prepared):
    parts = {}
    for accumulation in (1, 2):
        settings, _, exchanges = compiled(
            prepared, "replicated", accumulation=accumulation
        )
        parts[accumulation] = sum(one.sent for one in exchanges)
    # The gradients of each micro-batch are summed over the devices.
    assert 1.8 < parts[2] / parts[1] < 2.2
