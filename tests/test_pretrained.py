"""Laws of published checkpoints: they load, compute alike, and leave as they came."""

import json

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file

import bert_jax
from bert_jax.models import Bert, BertConfig, Pretraining
from bert_jax.predict import Model

TINY = {
    "vocab_size": 31,
    "hidden_size": 12,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "max_position_embeddings": 16,
}
IDS = np.array([[2, 7, 8, 9, 3, 0, 0], [2, 11, 12, 3, 13, 14, 3]])


def drawn(module, seed=1):
    """Parameters far from their initial values, so that no term is a no-op."""
    ids = jax.ShapeDtypeStruct((1, 2), np.int32)
    shapes = jax.eval_shape(module.init, jax.random.key(0), ids)["params"]
    draw = np.random.default_rng(seed)
    return jax.tree.map(lambda x: draw.normal(0.1, 0.3, x.shape).astype("f4"), shapes)


def assert_same(tree, other):
    assert jax.tree.structure(tree) == jax.tree.structure(other)
    jax.tree.map(np.testing.assert_array_equal, tree, other)


def test_load_gives_back_what_save_wrote(tmp_path):
    module = Pretraining(Bert(BertConfig(**TINY)))
    model = Model.of(module, drawn(module))
    model.save(tmp_path)
    again = bert_jax.load(tmp_path)
    assert again.head == module and again.config == module.encoder.config
    assert_same(model.params, again.params)


@pytest.mark.parity
def test_transformers_loads_what_save_wrote(tmp_path):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    module = Pretraining(Bert(BertConfig(**TINY)))
    model = Model.of(module, drawn(module))
    model.save(tmp_path)
    theirs, report = transformers.BertForPreTraining.from_pretrained(
        tmp_path, output_loading_info=True, attn_implementation="eager"
    )
    assert not any(report.values()), report
    mask = (IDS > 0).astype(np.int32)
    output = theirs.eval()(torch.tensor(IDS), attention_mask=torch.tensor(mask))
    tokens, pairs = model(input_ids=IDS, attention_mask=mask)
    real = mask == 1
    np.testing.assert_allclose(
        tokens[real], output.prediction_logits.detach().numpy()[real], atol=1e-4
    )
    np.testing.assert_allclose(
        pairs, output.seq_relationship_logits.detach().numpy(), atol=1e-4
    )


def test_every_wrong_tensor_is_named_in_one_error(tmp_path):
    from safetensors.numpy import save_file

    module = Pretraining(Bert(BertConfig(**TINY)))
    Model.of(module, drawn(module)).save(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors["cls.seq_relationship.bias"]
    tensors["bert.pooler.dense.weight"] = np.zeros((12, 13), np.float32)
    tensors["bert.surprise"] = np.zeros(1, np.float32)
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="3 tensors do not fit") as error:
        bert_jax.load(tmp_path)
    for part in (
        "cls.seq_relationship.bias is missing",
        "bert.pooler.dense.weight is (12, 13), not (12, 12)",
        "bert.surprise is unknown",
    ):
        assert part in str(error.value)


def test_config_json_names_the_architecture(tmp_path):
    module = Pretraining(Bert(BertConfig(**TINY)))
    Model.of(module, drawn(module)).save(tmp_path)
    published = json.loads((tmp_path / "config.json").read_text())
    assert published["architectures"] == ["BertForPreTraining"]
    assert published["model_type"] == "bert" and published["hidden_size"] == 12
