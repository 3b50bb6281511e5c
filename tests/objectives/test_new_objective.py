"""A new pre-training objective is one file; this is such a file."""

import dataclasses
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
import optax
import pytest
import soak

import bert_jax
from bert_jax.objectives.losses import (
    apply_model,
    throughput_totals,
    valid_attention_mask,
)
from bert_jax.tasks.pretraining import PretrainingConfig, PretrainingTask
from bert_jax.training import TrainConfig


@dataclasses.dataclass(frozen=True)
class NeighbourTask(PretrainingTask):
    """Every token predicts its right neighbour, which it may see."""

    loss_weights: ClassVar[dict[str, float]] = {"neighbour_loss": 1.0}
    predicts_pairs = False

    def totals(self, model, params, batch, key):
        ids, mask = batch["input_ids"], valid_attention_mask(batch)
        everywhere = jnp.broadcast_to(jnp.arange(ids.shape[1])[None], ids.shape)
        logits = apply_model(model, params, batch, key, ids, positions=everywhere)
        losses = optax.softmax_cross_entropy_with_integer_labels(
            logits[:, :-1], ids[:, 1:]
        )
        weights = (mask[:, 1:] > 0).astype(jnp.float32)
        count = weights.sum()
        return {
            "neighbour_loss": ((losses * weights).sum(), count),
            **throughput_totals(model.encoder.config, mask, count),
        }


@dataclasses.dataclass
class NeighbourConfig(PretrainingConfig):
    """The objective in a recipe."""

    task_class: ClassVar[type] = NeighbourTask


@pytest.mark.slow
def test_an_objective_of_one_file_trains_saves_and_loads(prepared, tmp_path):
    short = soak.short(prepared)
    task = NeighbourConfig(prepared=str(prepared), recipe=short.task.recipe)
    config = TrainConfig(**vars(short) | {"task": task})
    model = bert_jax.train(config, tmp_path)
    first, last = (x for x in soak.metrics(tmp_path) if x["split"] == "eval")
    assert last["neighbour_loss"] < first["neighbour_loss"]
    assert last["loss"] == last["neighbour_loss"]
    for source in (tmp_path / "model", tmp_path / "checkpoints/6"):
        loaded = bert_jax.load(source)
        np.testing.assert_allclose(
            loaded.embed("a class"), model.embed("a class"), atol=1e-6
        )
