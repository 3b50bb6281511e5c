"""Losses of sparse vectors and of late interaction, and their gradients, as in
sentence-transformers.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.models.sparse import log1p_twice, pooled
from bert_jax.objectives import contrastive, late_interaction
from bert_jax.objectives.contrastive import VectorGroups
from bert_jax.objectives.sparse import flops, rising

pytestmark = pytest.mark.parity

B, C, L, V = 3, 3, 5, 11
DRAW = np.random.default_rng(0)
LOGITS = DRAW.normal(size=(B, C, L, V)).astype("f4")
MASK = DRAW.integers(1, L + 1, (B, C))[..., None] > np.arange(L)
LABELS = DRAW.normal(size=(B, C - 1)).astype("f4")
EXISTS = np.ones((B, C), bool)


def compare(ours, theirs, x):
    """Asserts that values and gradients by `x` are the same."""
    import torch

    value, gradient = jax.value_and_grad(ours)(jnp.asarray(x))
    tensor = torch.tensor(x, requires_grad=True)
    expected = theirs(tensor)
    expected.backward()
    np.testing.assert_allclose(value, expected.item(), rtol=1e-5)
    np.testing.assert_allclose(gradient, tensor.grad.numpy(), atol=1e-5)


def average(total):
    return total[0] / total[1]


@pytest.mark.parametrize("pooling", ["max", "sum"])
@pytest.mark.parametrize("activation", ["relu", "log1p_relu"])
def test_pooling_of_logits_has_the_same_values_and_gradients(pooling, activation):
    import torch
    from sentence_transformers.sparse_encoder.modules import SpladePooling

    logits, mask = LOGITS[:, 0], MASK[:, 0]
    weights = DRAW.normal(size=(B, V)).astype("f4")

    def ours(x):
        y = pooled(jnp.zeros((B, V)), x, jnp.asarray(mask), pooling, activation)
        y = log1p_twice(y, activation) if pooling == "max" else y
        return (y * weights).sum()

    def theirs(x):
        module = SpladePooling(pooling, activation).train()
        features = {"token_embeddings": x, "attention_mask": torch.tensor(mask)}
        out = module(features)["sentence_embedding"]
        return (out * torch.tensor(weights)).sum()

    compare(ours, theirs, logits)


@pytest.mark.parametrize("threshold", [None, 5])
@pytest.mark.parametrize("name", ["multiple_negatives", "margin_mse", "kl"])
def test_splade_losses_have_the_same_values_and_gradients(name, threshold):
    import torch
    from sentence_transformers.sparse_encoder import losses

    classes = {
        "multiple_negatives": losses.SparseMultipleNegativesRankingLoss,
        "margin_mse": losses.SparseMarginMSELoss,
        "kl": losses.SparseDistillKLDivLoss,
    }
    vectors = np.log1p(np.maximum(LOGITS.max(2), 0))
    labels = None if name == "multiple_negatives" else LABELS
    settings = {"cosine": False, "scale": 1.0} if labels is None else {}
    settings |= {"temperature": 2.0} if name == "kl" else {}  # their default here
    loss = contrastive.LOSSES[name].function

    def ours(x):
        groups = VectorGroups(x, jnp.asarray(EXISTS), labels)
        query = flops(x[:, :1], EXISTS[:, :1], threshold)
        document = flops(x[:, 1:], EXISTS[:, 1:], threshold)
        base = average(loss(groups, **settings))
        return base + 0.05 * average(query) + 0.03 * average(document)

    def theirs(x):
        module = losses.SpladeLoss(
            torch.nn.Identity(),
            classes[name](torch.nn.Identity()),
            0.03,
            0.05,
            document_regularizer_threshold=threshold,
            query_regularizer_threshold=threshold,
        )
        columns = list(x.unbind(1))
        targets = None if labels is None else torch.tensor(labels)
        base = module.loss.compute_loss_from_embeddings(columns, targets)
        base = sum(base.values()) if isinstance(base, dict) else base
        documents = module.document_regularizer.compute_loss_from_embeddings(
            torch.cat(columns[1:])
        )
        queries = module.query_regularizer.compute_loss_from_embeddings(columns[0])
        return base + 0.05 * queries + 0.03 * documents

    compare(ours, theirs, vectors)


def test_weights_of_regularisers_rise_alike():
    from types import SimpleNamespace

    import torch
    from sentence_transformers.sparse_encoder import losses
    from sentence_transformers.sparse_encoder.callbacks.splade_callbacks import (
        SpladeRegularizerWeightSchedulerCallback as Scheduler,
    )

    base = losses.SparseMultipleNegativesRankingLoss(torch.nn.Identity())
    for schedule in ("quadratic", "linear"):
        module = losses.SpladeLoss(torch.nn.Identity(), base, 0.3, 0.5)
        scheduler = Scheduler(module, schedule, warmup_ratio=0.5)
        scheduler.on_train_begin(None, SimpleNamespace(max_steps=20), None)
        for step in (0, 3, 9, 10, 15):
            scheduler.on_step_begin(None, SimpleNamespace(global_step=step), None)
            factor = float(rising(jnp.array(float(step)), 10, schedule))
            assert module.document_regularizer_weight == pytest.approx(0.3 * factor)
            assert module.query_regularizer_weight == pytest.approx(0.5 * factor)


@pytest.mark.parametrize("name", ["multiple_negatives", "margin_mse", "kl"])
def test_losses_of_late_interaction_have_the_same_values_and_gradients(name):
    import torch
    from sentence_transformers.multi_vector_encoder import losses

    classes = {
        "multiple_negatives": losses.MultiVectorMultipleNegativesRankingLoss,
        "margin_mse": losses.MultiVectorMarginMSELoss,
        "kl": losses.MultiVectorDistillKLDivLoss,
    }

    def ours(x):
        scores = late_interaction.all_scores(
            x[:, 0], MASK[:, 0], x[:, 1:], jnp.asarray(MASK[:, 1:])
        )
        if name == "multiple_negatives":
            return average(late_interaction.in_batch(scores, EXISTS))
        own = jnp.einsum("BBC->BC", scores)
        groups = VectorGroups(late_interaction.as_vectors(own), EXISTS, LABELS)
        return average(contrastive.LOSSES[name].function(groups))

    def theirs(x):
        class Encoder(torch.nn.Module):
            def forward(self, features, **_):
                return {k: features[k] for k in ("token_embeddings", "attention_mask")}

        encoder = Encoder()
        columns = [
            {
                "token_embeddings": x[:, c],
                "attention_mask": torch.tensor(MASK[:, c]),
                "input_ids": torch.zeros(B, L, dtype=torch.long),
            }
            for c in range(C)
        ]
        module = classes[name](encoder)
        return module(columns, torch.tensor(LABELS))

    compare(ours, theirs, LOGITS)
