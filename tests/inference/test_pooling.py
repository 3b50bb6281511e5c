"""Laws of pooling: its results, and how many places a new one touches."""

import json

import jax
import numpy as np
import pytest
from tiny import LETTERS, TINY, made, wordpiece

import bert_jax
from bert_jax.models import Bert, Features
from bert_jax.models.pooling import MODES, Mode
from bert_jax.pretrained import Pooling
from bert_jax.pretrained.dense import Dense


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


@pytest.fixture(scope="module")
def layers():
    """Two dense layers on two poolings of a tiny model."""
    draw = np.random.default_rng(0).standard_normal
    first = draw((24, 7), np.float32), draw(7, np.float32)
    second = draw((7, 5), np.float32), draw(5, np.float32)
    return Dense(*first, "Tanh"), Dense(*second, "Identity")


@pytest.fixture(scope="module")
def projected(tmp_path_factory, layers):
    """A model with dense layers on its poolings."""
    folder = tmp_path_factory.mktemp("vocabulary")
    model = made(Features(Bert(TINY)), wordpiece(folder, LETTERS))
    model.pooling = Pooling(("mean", "max"), normalize=True, dense=layers)
    return model


TEXTS = ["a b c", "d", "e f"]


def test_vectors_go_through_dense_layers_before_they_are_scaled(projected, layers):
    modes = projected.pooling.modes
    x = np.hstack([projected.embed(TEXTS, mode, normalize=False) for mode in modes])
    first, second = layers
    x = np.tanh(x @ first.kernel + first.bias) @ second.kernel + second.bias
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    np.testing.assert_allclose(projected.embed(TEXTS), x, atol=1e-6)
    assert "mean and max pooling, dense 7, dense 5, scaled" in repr(projected)
    with pytest.raises(ValueError, match="dense layers of this model read the last"):
        projected.embed(TEXTS, layers=(-2,))


def test_dense_layers_are_saved_and_loaded(projected, tmp_path):
    projected.save(tmp_path)
    again = bert_jax.load(tmp_path)
    np.testing.assert_array_equal(again.embed(TEXTS), projected.embed(TEXTS))


def test_a_function_of_a_model_has_its_dense_layers_as_parameters(projected):
    function, params = bert_jax.as_function(projected)
    batch = projected.tokenizer(TEXTS)
    arrays = batch["input_ids"], batch["attention_mask"]
    expected = projected.embed(TEXTS)
    np.testing.assert_allclose(function(params, *arrays), expected, atol=1e-6)
    slopes = jax.grad(lambda params: function(params, *arrays)[0, 0])(params)
    assert np.abs(slopes["pooling/dense/0/kernel"]).max() > 0


@pytest.mark.parametrize(
    "changed, message",
    [
        ({"activation_function": "mine.Act"}, "activation_function='mine.Act', which"),
        ({"use_residual": True}, "has use_residual=True, which is not supported"),
        ({"module_input_name": "token_embeddings"}, "module_input_name='token_embeddi"),
        (
            {"out_features": 6},
            r"has linear.weight \[7, 24\] and linear.bias \[7\]",
        ),
    ],
)
def test_a_dense_layer_that_computes_otherwise_is_refused(
    projected, tmp_path, changed, message
):
    projected.save(tmp_path)
    file = tmp_path / "2_Dense/config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changed))
    with pytest.raises(ValueError, match=message):
        bert_jax.load(tmp_path)


@pytest.mark.slow
@pytest.mark.parity
@pytest.mark.parametrize("activation", ["Tanh", "GELU"])
def test_dense_layers_compute_what_those_of_sentence_transformers_do(
    projected, tmp_path, activation
):
    library = pytest.importorskip("sentence_transformers")
    first, second = projected.pooling.dense
    pooling = Pooling(dense=(first.replace(activation=activation), second))
    pooling = pooling.replace(modes=("mean", "max"), normalize=True)
    model = bert_jax.Model(**vars(projected) | {"pooling": pooling})
    model.save(tmp_path / "ours")
    theirs = library.SentenceTransformer(str(tmp_path / "ours"), device="cpu")
    np.testing.assert_allclose(model.embed(TEXTS), theirs.encode(TEXTS), atol=1e-6)
    theirs.save(str(tmp_path / "theirs"))
    again = bert_jax.load(tmp_path / "theirs")
    np.testing.assert_array_equal(again.embed(TEXTS), model.embed(TEXTS))


def test_a_weighted_mean_without_the_prompt_is_refused():
    with pytest.raises(
        ValueError, match="weightedmean counts the tokens of the prompt"
    ):
        Pooling(("weightedmean",), include_prompt=False)


@pytest.mark.slow
@pytest.mark.parity
@pytest.mark.parametrize("mode", [x for x in MODES if x != "weightedmean"])
def test_prompts_are_left_out_of_the_pooling_as_in_sentence_transformers(
    projected, tmp_path, mode
):
    library = pytest.importorskip("sentence_transformers")
    pooling = Pooling((mode,), True, "q r ", (("query", "x "),), include_prompt=False)
    model = bert_jax.Model(**vars(projected) | {"pooling": pooling})
    model.save(tmp_path)
    theirs = library.SentenceTransformer(str(tmp_path), device="cpu")
    again = bert_jax.load(tmp_path)
    for prompt in (None, "query"):
        expected = theirs.encode(TEXTS, prompt_name=prompt)
        np.testing.assert_allclose(
            again.embed(TEXTS, prompt=prompt), expected, atol=1e-5
        )
    assert not np.allclose(model.embed(TEXTS), model.embed(TEXTS, prompt="query"))
