"""Laws of `benchmarks.loss_curves`: both sides train the same thing."""

import dataclasses

import jax
import numpy as np
import pytest

from bert_jax import pretrained
from bert_jax.inference.model import Model
from bert_jax.models import heads
from bert_jax.models.heads import PermutationLM
from bert_jax.training.optimizers import decay_mask

pytestmark = pytest.mark.parity
torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

HEADS = {
    "bert": heads.Pretraining,
    "roberta": heads.MaskedLM,
    "albert": heads.Pretraining,
    "xlnet": PermutationLM,
    "modernbert": heads.MaskedLM,
}


def decayed(params):
    """Numbers of parameters that decay, and that do not."""
    pairs = zip(
        jax.tree.leaves(decay_mask(params)), jax.tree.leaves(params), strict=True
    )
    sizes = [(decays, x.size) for decays, x in pairs]
    return tuple(
        sum(n for kind, n in sizes if kind == decays) for decays in (True, False)
    )


@pytest.mark.parametrize("name", HEADS)
def test_both_sides_decay_as_much(name, tmp_path):
    from benchmarks import loss_curves, loss_curves_torch

    encoder = loss_curves.OBJECTIVES[name].recipe().encoder
    encoder = dataclasses.replace(encoder, vocab_size=11)
    model = pretrained.new_head(HEADS[name], encoder.build())
    draw = jax.jit(lambda key: model.init(key, np.zeros((1, 2), np.int32))["params"])
    params = draw(jax.random.key(0))
    Model.of(model, params).save(tmp_path)
    peer = loss_curves_torch.PEERS[name](tmp_path, None, 32)
    groups = loss_curves_torch.groups(peer.models, 0.01)
    assert [group["weight_decay"] for group in groups] == [0.01, 0.0]
    result = tuple(sum(p.numel() for p in group["params"]) for group in groups)
    assert result == decayed(params)


def test_the_table_has_all_curves_and_how_far_they_part():
    from benchmarks.loss_curves import Curves, table

    exact = np.array([3.0, 2.0, 1.5, 1.25, 1.0])
    result = table({"bert": Curves(exact + [0, 0.25, 0, 0, 0], exact, exact - 0.5)}, 5)
    assert result.splitlines() == [
        "|  |  | 1 | 2 | 5 | largest difference to float64 |",
        "| --- | --- | --- | --- | --- | --- |",
        "| bert | bert_jax | 3.0000 | 2.2500 | 1.0000 | 0.2 |",
        "|  | PyTorch, float64 | 3.0000 | 2.0000 | 1.0000 |  |",
        "|  | PyTorch, float32 | 2.5000 | 1.5000 | 0.5000 | 0.5 |",
    ]
