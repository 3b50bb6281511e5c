"""Laws of reading and writing Google's TensorFlow 1 checkpoints."""

import json
import warnings

import numpy as np
import pytest
from test_pretrained import TINY, assert_same, assert_same_model, made

import bert_jax
from bert_jax.models import (
    BertConfig,
    Features,
    MaskedLM,
    Pretraining,
    SequenceClassifier,
    SpanClassifier,
    TokenClassifier,
)
from bert_jax.pretrained import google

LAYER = """attention/output/LayerNorm/beta attention/output/LayerNorm/gamma
attention/output/dense/bias attention/output/dense/kernel
attention/self/key/bias attention/self/key/kernel
attention/self/query/bias attention/self/query/kernel
attention/self/value/bias attention/self/value/kernel
intermediate/dense/bias intermediate/dense/kernel
output/LayerNorm/beta output/LayerNorm/gamma output/dense/bias output/dense/kernel"""
REST = """bert/embeddings/LayerNorm/beta bert/embeddings/LayerNorm/gamma
bert/embeddings/position_embeddings bert/embeddings/token_type_embeddings
bert/embeddings/word_embeddings bert/pooler/dense/bias bert/pooler/dense/kernel
cls/predictions/output_bias cls/predictions/transform/LayerNorm/beta
cls/predictions/transform/LayerNorm/gamma cls/predictions/transform/dense/bias
cls/predictions/transform/dense/kernel cls/seq_relationship/output_bias
cls/seq_relationship/output_weights"""


def test_names_and_shapes_are_those_that_google_publishes(tmp_path):
    made().save_tf1(tmp_path)
    variables = google.read_variables(tmp_path / "bert_model.ckpt")
    layers = {
        f"bert/encoder/layer_{i}/{name}" for i in (0, 1) for name in LAYER.split()
    }
    assert set(variables) == layers | set(REST.split())
    # Only the last layer of a head is stored as [out, in].
    shapes = {name: x.shape for name, x in variables.items()}
    assert shapes["bert/encoder/layer_0/intermediate/dense/kernel"] == (12, 20)
    assert shapes["cls/seq_relationship/output_weights"] == (2, 12)


@pytest.mark.parametrize(
    "head, fields",
    [
        (Pretraining, {}),
        (MaskedLM, {}),
        (SequenceClassifier, {"num_labels": 3}),
        (SpanClassifier, {}),
        (Features, {"has_pooler": True}),
    ],
)
def test_google_checkpoints_are_loaded_as_they_were_saved_bit_for_bit(
    tmp_path, head, fields
):
    labels = ("LABEL_0", "LABEL_1", "LABEL_2")[: fields.get("num_labels", 0)]
    model = made(head, labels=labels, **fields)
    model.save_tf1(tmp_path)
    assert_same_model(model, bert_jax.load(tmp_path))
    assert_same_model(model, bert_jax.load(tmp_path / "bert_model.ckpt"))


def test_gelu_in_a_file_of_google_means_the_tanh_approximation(tmp_path):
    for act in ("gelu", "gelu_new", "relu"):
        model = made(config=BertConfig(**TINY, hidden_act=act))
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            model.save_tf1(tmp_path)
        assert bert_jax.load(tmp_path).config.hidden_act == act
        exact = [str(x.message) for x in seen if "exact gelu" in str(x.message)]
        assert len(exact) == (act == "gelu")
    path = tmp_path / "bert_config.json"
    published = json.loads(path.read_text())
    assert "gelu" not in published
    path.write_text(json.dumps(published | {"hidden_act": "gelu"}))
    assert bert_jax.load(tmp_path).config.hidden_act == "gelu_new"


def test_optimizer_variables_are_skipped(tmp_path):
    model = made()
    model.save_tf1(tmp_path)
    prefix = tmp_path / "bert_model.ckpt"
    variables = google.read_variables(prefix)
    slots = {f"{name}/adam_m": x for name, x in variables.items()}
    step = {"global_step": np.int64(7)}
    google.write_variables(tmp_path / "model.ckpt-7", variables | slots | step)
    prefix.with_suffix(".ckpt.index").unlink()
    assert_same(model.params, bert_jax.load(tmp_path).params)


@pytest.mark.parametrize(
    "head, config, message",
    [
        (TokenClassifier, {}, "TokenClassifier is published by no bert"),
        (Pretraining, {"layer_norm_eps": 1e-5}, "layer_norm_eps=1e-05 has no form in"),
        (MaskedLM, {"tie_word_embeddings": False}, "tie_word_embeddings=False has no"),
    ],
)
def test_models_that_google_has_no_format_for_are_refused(
    tmp_path, head, config, message
):
    fields = {"num_labels": 2} if head is TokenClassifier else {}
    model = made(head, config=BertConfig(**TINY | config), **fields)
    with pytest.raises(ValueError, match=message):
        model.save_tf1(tmp_path)
    assert not list(tmp_path.iterdir())


def test_damaged_and_missing_files_are_named(tmp_path):
    made().save_tf1(tmp_path)
    (tmp_path / "bert_model.ckpt.data-00000-of-00001").write_bytes(b"no")
    with pytest.raises(ValueError, match="bert_model.ckpt is damaged"):
        bert_jax.load(tmp_path)
    (tmp_path / "bert_model.ckpt.index").unlink()
    with pytest.raises(ValueError, match="no bert_model.ckpt.index"):
        bert_jax.load(tmp_path)
