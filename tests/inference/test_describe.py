"""Laws of `describe`: its numbers are those of the model."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import LETTERS, TINY, wordpiece

import bert_jax
from bert_jax.inference import describe
from bert_jax.models import (
    Bert,
    BertConfig,
    MultipleChoice,
    Pretraining,
    TokenClassifier,
)

CONFIG = BertConfig(
    vocab_size=1009,
    hidden_size=48,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=112,
    max_position_embeddings=40,
)


def unset(head, tokenizer=None, labels=()):
    """A model whose parameters are all 0: only their shapes count here."""
    shape = (1, 2, 2) if isinstance(head, MultipleChoice) else (1, 2)
    ids = jax.ShapeDtypeStruct(shape, np.int32)
    shapes = jax.eval_shape(head.init, jax.random.key(0), ids)["params"]
    params = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), shapes)
    return bert_jax.Model.of(head, params, tokenizer, labels)


@pytest.fixture(scope="module")
def model():
    return unset(Pretraining(Bert(CONFIG)))


def test_parameters_add_up_and_layers_share_a_line(model):
    lines = bert_jax.describe(model).splitlines()
    total = sum(x.size for x in jax.tree.leaves(model.params))
    assert f" {total:,}" in next(x for x in lines if x.startswith("total "))
    rows = [x for x in lines if x.startswith("encoder/")]
    assert sum("layer_#/mlp/up/kernel" in x for x in rows) == 1
    (row,) = [x for x in rows if "layer_#/mlp/up/kernel" in x]
    assert re.search(r"\[48, 112\] +5,376 x 3 +16,128$", row)
    counts = [x.split()[-1].replace(",", "") for x in lines if "/" in x.split(" ")[0]]
    assert sum(map(int, counts)) == total


def test_flops_are_those_of_the_formula_that_mfu_counts_with(model):
    length = 40
    flops = sum(map(describe.flops_of, describe.products(model, 1, length)))
    predicted = round(describe.PREDICTED * length)
    expected = CONFIG.training_flops(
        tokens=length, seen=length * length, predictions=predicted
    )
    # Beside it: token types, pooler and the question about the pair.
    D = CONFIG.hidden_size
    rest = 2 * (length * 2 * D + D * D + 2 * D)
    assert flops == float(expected) / 3 + rest


def test_flops_are_those_that_xla_counts(model):
    """XLA counts additions of arrays too, which are few beside the products."""
    batch = {"input_ids": jnp.zeros((1, 40), jnp.int32)}
    flops = sum(map(describe.flops_of, describe.products(model, 1, 40)))
    positions = jnp.zeros((1, round(describe.PREDICTED * 40)), jnp.int32)
    lowered = jax.jit(model.head.apply).lower(
        {"params": model.params}, **batch, positions=positions
    )
    assert flops < lowered.cost_analysis()["flops"] < 1.2 * flops


def test_activations_grow_with_rows_and_shrink_with_remat(model):
    one, two = (describe.activation_bytes(model, 40, rows) for rows in (3, 6))
    assert one < two < 2.1 * one
    again = dataclasses.replace(CONFIG, remat=True)
    thrifty = unset(Pretraining(Bert(again)))
    assert describe.activation_bytes(thrifty, 40, 3) < 0.6 * one


def test_every_head_is_described(tmp_path):
    tokenizer = wordpiece(tmp_path, LETTERS)
    tagger = unset(TokenClassifier(Bert(TINY), 2), tokenizer, ("O", "B-x"))
    shown = bert_jax.describe(tagger)
    assert "2 labels: O, B-x" in shown and "rows of 20" in shown
    chooser = unset(MultipleChoice(Bert(TINY)))
    assert "FLOPs per token" in bert_jax.describe(chooser)


@pytest.mark.parametrize("size", [{"length": 0}, {"batch_size": 0}])
def test_sizes_below_one_are_errors(model, size):
    with pytest.raises(ValueError, match="it must be at least 1"):
        bert_jax.describe(model, **size)
