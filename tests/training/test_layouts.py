"""Laws of the layouts on eight devices: equal numbers, and the bytes exchanged."""

import itertools
import math

import jax
import numpy as np
import pytest
import soak

from benchmarks import hlo, report
from bert_jax.data import pipeline
from bert_jax.models import BertConfig
from bert_jax.training import sharding
from bert_jax.training.program import Program

# Layout -> devices that share one copy of the model.
LAYOUTS = {"replicated": 1, "fsdp": 1, "tensor": 2, "fsdp_tensor": 2}
STEPS = 20
# Bytes of the hidden states of a batch, which no device is to hold: 16 rows of 32.
ACTIVATIONS = 4 * 16 * 32 * 16
ENCODER = BertConfig(
    vocab_size=300,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=32,
)


def program_of(prepared, folder, layout, **changes):
    """A run's program, its batches and its config."""
    shared = LAYOUTS[layout]
    settings = soak.pretraining(
        prepared,
        encoder=ENCODER,
        num_steps=STEPS,
        layout=layout,
        model_parallel=shared,
        **changes,
    )
    task = settings.task.prepare(folder, settings.encoder, settings.seed)
    program = Program(settings, task, sharding.make_mesh(shared))
    rows = pipeline.batches(task.rows["train"], batch_size=16, seed=0)
    return settings, program, map(program.place, rows)


@pytest.fixture
def small_is_large(monkeypatch):
    """Lets the small matrices of tests be sharded."""
    monkeypatch.setattr(sharding, "FSDP_MIN_SIZE", 64)


def trained(prepared, folder, layout, **changes):
    _, program, batches = program_of(prepared, folder, layout, **changes)
    state = program.init({})
    for batch in itertools.islice(batches, STEPS):
        state, _ = program.train_step(state, batch)
    return jax.tree_util.tree_leaves_with_path(program.gather(state.params))


@pytest.fixture(scope="module")
def expected(prepared, tmp_path_factory):
    return trained(prepared, tmp_path_factory.mktemp("whole"), "replicated")


@pytest.mark.slow
@pytest.mark.parametrize(
    "layout",
    [
        pytest.param("fsdp", marks=pytest.mark.slow),
        pytest.param("tensor", marks=pytest.mark.slow),
        "fsdp_tensor",
    ],
)
def test_twenty_steps_give_the_same_parameters_in_every_layout(
    prepared, tmp_path, expected, small_is_large, layout
):
    params = trained(prepared, tmp_path, layout)
    for (path, x), (_, y) in zip(expected, params, strict=True):
        # Sums over devices are taken in another order, and Adam divides by roots.
        np.testing.assert_allclose(x, y, atol=2e-4, err_msg=str(path))


def compiled(prepared, folder, layout, **changes):
    settings, program, batches = program_of(prepared, folder, layout, **changes)
    text = program.lower(next(batches)).compile().as_text()
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


def test_replicated_sums_each_gradient_once(prepared, tmp_path):
    settings, program, exchanges = compiled(prepared, tmp_path, "replicated")
    sent = crossing(settings, exchanges, "all-reduce")
    least = 2 * 7 / 8 * bytes_of(program, large=False)
    word = 2 * 7 / 8 * 4 * 300 * 16  # looked up and decoded with: two sums, or one
    assert 0.98 * least < sent < 1.02 * (least + word)
    assert report.foreign(program, exchanges) < ACTIVATIONS


@pytest.mark.slow
def test_fsdp_gathers_parameters_once_and_no_activations(
    prepared, tmp_path, small_is_large
):
    settings, program, exchanges = compiled(prepared, tmp_path, "fsdp")
    cut = bytes_of(program, large=True)
    assert cut > 9 * bytes_of(program, large=False)
    sent = crossing(settings, exchanges, "all-gather")
    assert sent == pytest.approx(7 / 8 * cut, rel=0.1)
    assert report.foreign(program, exchanges) < ACTIVATIONS


@pytest.mark.slow
def test_tensor_sums_the_activations_of_each_block_four_times(prepared, tmp_path):
    settings, program, exchanges = compiled(prepared, tmp_path, "tensor")
    rows = report.by_kind(settings, exchanges)
    sums = [r for r in rows if (r["kind"], r["axis"]) == ("all-reduce", "model")]
    # Two a block forward and two backward, and those of the tied embedding.
    of_activations = 4 * 16 / 4 * 32 * 16  # float32, rows of one copy
    assert sum(r["sent"] for r in sums) >= 4 * 2 * of_activations
    assert report.foreign(program, exchanges) < ACTIVATIONS


@pytest.mark.slow
def test_exchanges_in_a_loop_are_counted_once_per_iteration(prepared, tmp_path):
    parts = {}
    for accumulation in (1, 2):
        settings, _, exchanges = compiled(
            prepared, tmp_path, "replicated", accumulation=accumulation
        )
        parts[accumulation] = sum(one.sent for one in exchanges)
    # The gradients of each micro-batch are summed over the devices.
    assert 1.8 < parts[2] / parts[1] < 2.2
