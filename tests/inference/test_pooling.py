"""Laws of pooling: its results, and how many places a new one touches."""

import json

import numpy as np
import pytest
from tiny import LETTERS, TINY, made, wordpiece

import bert_jax
from bert_jax.models import Bert, Features
from bert_jax.models.pooling import MODES, Mode
from bert_jax.pretrained import Pooling


@pytest.mark.parametrize(
    "mode, expected",
    [
        ("mean", lambda x: x.mean(0)),
        ("cls", lambda x: x[0]),
        ("max", lambda x: x.max(0)),
        ("mean_sqrt_len_tokens", lambda x: x.sum(0) / np.sqrt(len(x))),
        ("weightedmean", lambda x: np.average(x, 0, np.arange(1, len(x) + 1))),
        ("lasttoken", lambda x: x[-1]),
    ],
)
def test_pooling_reads_the_tokens_and_no_padding(mode, expected):
    x = np.random.default_rng(0).normal(size=(2, 5, 3)).astype(np.float32) - 2
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
    pooled = Pooling((mode, "cls"))(x, mask)
    for row, n in enumerate((3, 5)):
        both = [*expected(x[row, :n]), *x[row, 0]]
        np.testing.assert_allclose(pooled[row], both, rtol=1e-5)


def test_a_new_pooling_is_one_entry_of_a_table(tmp_path, monkeypatch):
    """It embeds, and is saved and loaded, alone and beside another one."""
    total = Mode(lambda x, weights: (x * weights[..., None]).sum(1))
    monkeypatch.setitem(MODES, "total", total)
    model = made(Features(Bert(TINY)), wordpiece(tmp_path, LETTERS))
    states = np.asarray(model.hidden_states(**model.tokenizer("a b c")))[-1, 0]
    vectors = model.embed(["a b c", "d"], pooling="total")
    np.testing.assert_allclose(vectors[0], states.sum(0), atol=1e-5)
    for modes in (("total",), ("total", "cls")):
        model.pooling = Pooling(modes, normalize=True)
        model.save(tmp_path / "model")
        settings = json.loads((tmp_path / "model/1_Pooling/config.json").read_text())
        assert settings["pooling_mode"] == list(modes)
        again = bert_jax.load(tmp_path / "model")
        assert again.pooling == model.pooling
        np.testing.assert_array_equal(again.embed("a b c"), model.embed("a b c"))
