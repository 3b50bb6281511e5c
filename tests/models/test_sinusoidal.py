"""Laws of sinusoidal position embeddings, which are not learnt."""

import dataclasses
import json

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tiny import LETTERS, made, wordpiece

import bert_jax
from bert_jax.models import Bert, BertConfig, Features, layers
from bert_jax.pretrained.families import FAMILIES

SIZES = {
    "vocab_size": len(LETTERS),
    "hidden_size": 12,
    "num_hidden_layers": 1,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "max_position_embeddings": 16,
    "initializer_range": 0.2,
}
FIXED = BertConfig(**SIZES, sinusoidal_pos_embds=True)
IDS = np.array([[5, 6, 7, 8, 9], [9, 9, 9, 9, 9]])


def of_family(name):
    """An encoder with sinusoids and the fixed fields of a family's published config."""
    family = FAMILIES[name]
    own_defaults = {k: v for k, v in family.defaults.items() if k not in SIZES}
    fields = {**SIZES, **own_defaults, **family.fixed, "model_type": name}
    fields |= {"embedding_size": 7} if name in ("albert", "electra") else {}
    config = BertConfig(**fields, sinusoidal_pos_embds=True)
    if name == "roberta":
        config.position_offset = config.pad_token_id + 1
    return config


def table_of(path):
    """The position embeddings in a published file, and its path."""
    file = path / "model.safetensors"
    tensors = load_file(file)
    (name,) = [k for k in tensors if "position_embeddings" in k]
    return file, tensors, name


def test_features_are_sines_and_cosines_of_slowing_angles():
    table = layers.sinusoids(50, 6)
    assert table.shape == (50, 6) and table.dtype == np.float32
    for pair, wavelength in enumerate((1.0, 10000 ** (1 / 3), 10000 ** (2 / 3))):
        angles = np.arange(50) / wavelength
        sines, cosines = table[:, 2 * pair], table[:, 2 * pair + 1]
        np.testing.assert_allclose(sines * 6**0.5, np.sin(angles), atol=1e-6)
        np.testing.assert_allclose(cosines * 6**0.5, np.cos(angles), atol=1e-6)


def test_scaling_words_and_positions_by_the_root_of_the_size_changes_nothing():
    words = np.random.default_rng(0).normal(size=(20, 12)).astype(np.float32)
    table = layers.sinusoids(20, 12)
    norm = layers.LayerNorm(1e-12)
    params = norm.init(jax.random.key(0), words)
    here = norm.apply(params, words + table)
    there = norm.apply(params, words * 12**0.5 + table * 12**0.5)
    np.testing.assert_allclose(here, there, atol=1e-5)


def test_fixed_positions_are_no_parameters_but_distinguish_tokens():
    model = made(Features(Bert(FIXED)))
    assert model.params["encoder"]["embeddings"].keys() == {
        "word",
        "token_type",
        "norm",
    }
    states = model(input_ids=IDS)
    assert np.abs(states[1, 0] - states[1, 1]).max() > 0.1


def test_a_learned_table_with_these_numbers_computes_the_same():
    fixed = made(Features(Bert(FIXED)))
    learned = made(
        Features(Bert(dataclasses.replace(FIXED, sinusoidal_pos_embds=False)))
    )
    encoder_params = fixed.params["encoder"]
    table = jax.numpy.asarray(layers.sinusoids(16, 12))
    embeddings = {**encoder_params["embeddings"], "position": table}
    learned.params = {"encoder": {**encoder_params, "embeddings": embeddings}}
    np.testing.assert_array_equal(learned(input_ids=IDS), fixed(input_ids=IDS))


# Those with a table of positions.
TABLED = [name for name, family in FAMILIES.items() if family.config is BertConfig]


@pytest.mark.parametrize("family", TABLED)
def test_a_fixed_table_is_saved_and_loaded_in_every_family(family, tmp_path):
    model = made(Features(Bert(of_family(family))))
    model.save(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["sinusoidal_pos_embds"]
    _, tensors, name = table_of(tmp_path)
    width = model.config.embedding_size or model.config.hidden_size
    np.testing.assert_array_equal(tensors[name], layers.sinusoids(16, width))
    again = bert_jax.load(tmp_path)
    assert again.config == model.config
    np.testing.assert_array_equal(again(input_ids=IDS), model(input_ids=IDS))


def test_a_fixed_table_that_was_trained_later_loads_as_a_parameter(tmp_path):
    made(Features(Bert(FIXED))).save(tmp_path)
    file, tensors, name = table_of(tmp_path)
    tensors[name] = tensors[name] + np.float32(0.01)
    save_file(tensors, file)
    loaded = bert_jax.load(tmp_path)
    assert not loaded.config.sinusoidal_pos_embds
    embeddings = loaded.params["encoder"]["embeddings"]
    np.testing.assert_array_equal(embeddings["position"], tensors[name])


def test_the_config_of_a_learned_table_does_not_mention_sinusoids(tmp_path):
    made(Features(Bert(BertConfig(**SIZES)))).save(tmp_path)
    assert "sinusoidal" not in (tmp_path / "config.json").read_text()


def test_googles_format_refuses_fixed_positions(tmp_path):
    model = made(Features(Bert(FIXED), has_pooler=True), wordpiece(tmp_path, LETTERS))
    with pytest.raises(ValueError, match="sinusoidal_pos_embds=True has no form in"):
        model.save_tf1(tmp_path / "tf1")


@pytest.mark.parity
@pytest.mark.parametrize("family", ["Bert", "DistilBert"])
def test_transformers_reads_a_fixed_table_and_computes_the_same(family, tmp_path):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    model = made(Features(Bert(of_family(family.lower()))))
    model.save(tmp_path)
    theirs, report = getattr(transformers, f"{family}Model").from_pretrained(
        tmp_path, output_loading_info=True
    )
    unread = {k for k in report["missing_keys"] if "pooler" not in k}
    assert not unread and not report["unexpected_keys"]
    with torch.no_grad():
        states = theirs(torch.tensor(IDS)).last_hidden_state.numpy()
    np.testing.assert_allclose(states, model(input_ids=IDS), atol=1e-5)


@pytest.mark.parity
def test_sinusoids_of_distilbert_are_read_from_its_file(tmp_path):
    transformers = pytest.importorskip("transformers")
    config = transformers.DistilBertConfig(
        vocab_size=31, dim=48, n_layers=1, n_heads=3, hidden_dim=20,
        max_position_embeddings=512, sinusoidal_pos_embds=True,
    )  # fmt: skip
    transformers.DistilBertModel(config).save_pretrained(tmp_path)
    _, tensors, name = table_of(tmp_path)
    loaded = bert_jax.load(tmp_path)
    table = loaded.params["encoder"]["embeddings"]["position"]
    np.testing.assert_array_equal(table, tensors[name])
    np.testing.assert_allclose(table, layers.sinusoids(512, 48) * 48**0.5, atol=1e-6)
