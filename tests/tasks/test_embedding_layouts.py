"""Laws of sentence vectors in chunks: equal gradients in every layout, exact resume."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import LETTERS, made, wordpiece

from bert_jax.data import memory_rows, pipeline
from bert_jax.models import Bert, BertConfig, Features
from bert_jax.tasks import EmbeddingConfig
from bert_jax.training import sharding
from bert_jax.training.config import TrainConfig
from bert_jax.training.optimizers import OptimizerConfig
from bert_jax.training.program import Program

# Layout -> devices that share one copy of the model.
LAYOUTS = {"replicated": 1, "fsdp": 1, "tensor": 2, "fsdp_tensor": 2}
DROPPING = BertConfig(
    vocab_size=len(LETTERS),
    hidden_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=16,
    hidden_dropout_prob=0.2,
    attention_probs_dropout_prob=0.2,
    initializer_range=0.2,
)
BATCH = 16


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model and rows of three texts, some of which have no negative."""
    folder = tmp_path_factory.mktemp("start")
    tokenizer = wordpiece(folder, LETTERS)
    made(Features(Bert(DROPPING)), tokenizer).save(folder / "model")
    draw = np.random.default_rng(0)
    rows = []
    for i in range(32):
        anchor, positive, negative = (
            " ".join(draw.choice([*"abcdefgh"], 6)) for _ in range(3)
        )
        rows.append(
            {"anchor": anchor, "positive": positive, "negative": [negative] * (i % 2)}
        )
    memory_rows.write(rows, folder / "rows.jsonl", "train")
    return folder


def program_of(folder, layout="replicated", chunk_size=0, devices=None):
    file = str(folder / "rows.jsonl")
    task = EmbeddingConfig(
        train=file,
        dev=file,
        max_length=16,
        chunk_size=chunk_size,
        dense=8,
        init_from=str(folder / "model"),
    )
    shared = LAYOUTS[layout]
    config = TrainConfig(
        encoder=DROPPING,
        task=task,
        optimizer=OptimizerConfig("adamw", 1e-2),
        batch_size=BATCH,
        num_steps=6,
        layout=layout,
        model_parallel=shared,
    )
    prepared = task.prepare(folder, DROPPING, 0)
    mesh = sharding.make_mesh(shared, devices)
    return Program(config, prepared, mesh), prepared


def gradient(folder, **settings):
    """The gradient of the loss of a batch, with dropout."""
    program, task = program_of(folder, **settings)
    state = program.init(task.pretrained_params(""))
    batch = next(pipeline.batches(task.rows["train"], batch_size=BATCH, seed=0))

    def loss(params, batch):
        total, count = program.loss(params, batch, jax.random.key(7))["loss"]
        return total / count

    with jax.set_mesh(program.mesh):
        grads = jax.jit(jax.grad(loss))(state.params, program.place(batch))
        return program.gather(grads)


@pytest.fixture(scope="module")
def plain(folder):
    """The gradient of one device, without chunks."""
    return gradient(folder, devices=jax.devices()[:1])


@pytest.mark.parametrize(
    "layout, chunk_size",
    [
        ("fsdp_tensor", 12),
        *(
            pytest.param(layout, size, marks=pytest.mark.slow)
            for layout in LAYOUTS
            for size in (0, 8, 16, 24)
        ),
    ],
)
def test_chunks_change_no_gradient_in_any_layout(
    folder, plain, monkeypatch, layout, chunk_size
):
    monkeypatch.setattr(sharding, "FSDP_MIN_SIZE", 64)
    grads = gradient(folder, layout=layout, chunk_size=chunk_size)
    largest = max(np.abs(x).max() for x in jax.tree.leaves(plain))
    for x, y in zip(*map(jax.tree.leaves, (plain, grads)), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-6 * largest, rtol=0)


@pytest.mark.slow
def test_a_run_goes_on_from_any_step_with_equal_parameters(folder):
    program, task = program_of(folder, chunk_size=8)
    state = program.init(task.pretrained_params(""))
    rows = task.rows["train"]
    states = [state]
    for batch in pipeline.batches(rows, batch_size=BATCH, seed=0, stop=6 * BATCH):
        # The step gives up the arrays of the state that it is called with.
        state, _ = program.train_step(
            jax.tree.map(jnp.copy, state), program.place(batch)
        )
        states.append(state)
    again = states[2]
    later = pipeline.batches(
        rows, batch_size=BATCH, seed=0, start=2 * BATCH, stop=6 * BATCH
    )
    for batch in later:
        again, _ = program.train_step(
            jax.tree.map(jnp.copy, again), program.place(batch)
        )
    jax.tree.map(np.testing.assert_array_equal, again.params, states[6].params)
