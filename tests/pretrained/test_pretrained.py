"""Laws of published checkpoints: loading, equal outputs, and saving unchanged."""

import json
import warnings

import huggingface_hub
import jax
import numpy as np
import orbax.checkpoint as orbax
import pytest
from flax import serialization, traverse_util
from safetensors.numpy import load_file, save_file

import bert_jax
from bert_jax import tokenizers
from bert_jax.inference.model import Model
from bert_jax.models import (
    Bert,
    BertConfig,
    Features,
    MaskedLM,
    ModernBertConfig,
    MultipleChoice,
    Pretraining,
    SequenceClassifier,
    SpanClassifier,
    TokenClassifier,
    XLNetConfig,
)
from bert_jax.pretrained import Pooling, Settings, load_settings, new_head, weights

TINY = {
    "vocab_size": 31,
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "max_position_embeddings": 16,
}
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *map(chr, range(97, 123))]


def drawn(module, seed=1):
    """Parameters far from their initial values, so that no term is a no-op."""
    ids = jax.ShapeDtypeStruct((1, 2), np.int32)
    shapes = jax.eval_shape(module.init, jax.random.key(0), ids)["params"]
    draw = np.random.default_rng(seed)
    return jax.tree.map(lambda x: draw.normal(0.1, 0.3, x.shape).astype("f4"), shapes)


def made(head=Pretraining, tokenizer=None, labels=(), config=None, **fields):
    module = head(Bert(config or BertConfig(**TINY)), **fields)
    return Model.of(module, drawn(module), tokenizer, labels)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    path.write_text("\n".join(WORDS))
    return tokenizers.WordPiece.from_vocab(path)


def assert_same(tree, other):
    assert jax.tree.structure(tree) == jax.tree.structure(other)
    jax.tree.map(np.testing.assert_array_equal, tree, other)


def assert_same_model(model, other):
    assert other.head == model.head and other.labels == model.labels
    assert_same(model.params, other.params)


def change(path, **values):
    """Changes entries of a JSON file; None removes them."""
    published = json.loads(path.read_text()) | values
    present = {k: v for k, v in published.items() if v is not None}
    path.write_text(json.dumps(present))


def test_load_gives_back_what_save_wrote(tmp_path, tokenizer):
    model = made(tokenizer=tokenizer)
    model.save(tmp_path)
    again = bert_jax.load(tmp_path)
    assert_same_model(model, again)
    assert again.config == model.config
    assert again.tokenizer.fingerprint == tokenizer.fingerprint


def test_labels_and_fields_of_a_head_are_saved_and_loaded(tmp_path):
    labels = ("no", "yes", "ja")
    fields = {"num_labels": 3, "rate": 0.25, "problem_type": "regression"}
    model = made(SequenceClassifier, labels=labels, **fields)
    model.save(tmp_path)
    assert_same_model(model, bert_jax.load(tmp_path))


SMALL = {"hidden_size": 12, "num_attention_heads": 3, "intermediate_size": 20}
ENCODERS = {
    "bert": BertConfig(**TINY),
    "roberta": BertConfig(**TINY, model_type="roberta", position_offset=1),
    "modernbert": ModernBertConfig(31, num_hidden_layers=2, **SMALL),
    "xlnet": XLNetConfig(31, 12, n_layer=1, n_head=3),
}


@pytest.mark.parametrize("head", [SequenceClassifier, MultipleChoice])
@pytest.mark.parametrize("family", ENCODERS)
def test_a_classifier_of_pooled_vectors_is_saved_and_loaded(tmp_path, family, head):
    labels = ("a", "b", "c") if head is SequenceClassifier else ()
    fields = {"num_labels": 3} if labels else {}
    fields |= {"hidden_act": None, "pooling": "cls+mean"}
    module = new_head(head, ENCODERS[family].build(), **fields)
    ids = np.zeros((1, 2, 2) if head is MultipleChoice else (1, 2), int)
    params = jax.eval_shape(module.init, jax.random.key(0), ids)["params"]
    assert params.keys() == {"encoder", "classifier"}
    draw = np.random.default_rng(0)
    params = jax.tree.map(lambda x: draw.normal(size=x.shape).astype("f4"), params)
    model = Model.of(module, params, labels=labels)
    model.save(tmp_path)
    assert_same_model(model, bert_jax.load(tmp_path))
    # A type that other libraries know would get a dense layer of random numbers.
    published = json.loads((tmp_path / "config.json").read_text())
    assert published["model_type"] == f"pooled_{family}"
    assert "has no classifier that reads cls+mean" in (
        (tmp_path / "README.md").read_text()
    )


def test_google_has_no_classifier_of_pooled_vectors(tmp_path):
    fields = {"num_labels": 3, "hidden_act": None, "pooling": "mean"}
    with pytest.raises(ValueError, match="mean pooling has no form in Google's"):
        made(SequenceClassifier, **fields).save_tf1(tmp_path)


def test_a_start_that_is_gone_declares_nothing_with_a_warning(tmp_path):
    for source in (tmp_path / "gone", "runs/gone"):
        with pytest.warns(UserWarning, match="gone are lost: it is not there any more"):
            assert load_settings(source) == Settings()


def test_other_fields_of_config_json_are_saved_and_loaded(tmp_path):
    made().save(tmp_path / "came")
    notes = {"finetuning_task": "poetry", "torch_dtype": "float16"}
    change(tmp_path / "came/config.json", **notes)
    bert_jax.load(tmp_path / "came").save(tmp_path / "left")
    published = json.loads((tmp_path / "left/config.json").read_text())
    assert published["finetuning_task"] == "poetry"
    # The file that leaves holds float32, whatever came.
    assert "torch_dtype" not in published


def test_an_untied_decoder_is_saved_with_its_unused_bias(tmp_path):
    untied = BertConfig(**TINY, tie_word_embeddings=False)
    model = made(MaskedLM, config=untied)
    model.save(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    bias = "cls.predictions.bias"
    np.testing.assert_array_equal(
        tensors[bias], tensors["cls.predictions.decoder.bias"]
    )
    tensors[bias] = np.ones(31, np.float32)
    save_file(tensors, tmp_path / "model.safetensors")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_same_model(model, bert_jax.load(tmp_path))


def test_unnamed_labels_have_the_names_of_transformers(tmp_path):
    made(TokenClassifier, num_labels=2).save(tmp_path)
    assert bert_jax.load(tmp_path).labels == ("LABEL_0", "LABEL_1")


def test_pooling_and_length_are_saved_and_loaded(tmp_path, tokenizer):
    model = made(Features, tokenizer=tokenizer, has_pooler=True)
    model.pooling = Pooling(("cls", "mean"), normalize=True, prompt="a ")
    model.max_length = 9
    model.save(tmp_path)
    again = bert_jax.load(tmp_path)
    assert again.pooling == model.pooling and again.max_length == 9


def test_the_order_of_several_poolings_is_saved_and_loaded(tmp_path):
    model = made(Features)
    model.pooling = Pooling(("mean", "max"))
    model.save(tmp_path)
    assert bert_jax.load(tmp_path).pooling.modes == ("mean", "max")


def test_shards_are_read_together(tmp_path):
    model = made()
    model.save(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    (tmp_path / "model.safetensors").unlink()
    names = sorted(tensors)
    shards = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for name, part in shards.items():
        save_file({k: tensors[k] for k in part}, tmp_path / name)
    where = {k: name for name, part in shards.items() for k in part}
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": where}))
    assert_same_model(model, bert_jax.load(tmp_path))
    (tmp_path / "b.safetensors").unlink()
    with pytest.raises(ValueError, match="missing: b.safetensors"):
        bert_jax.load(tmp_path)


def test_an_index_names_files_of_its_own_directory_only(tmp_path):
    made().save(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path.parent / "elsewhere.safetensors")
    index = tmp_path / "model.safetensors.index.json"
    index.write_text('{"weight_map": {"a": "../elsewhere.safetensors"}}')
    with pytest.raises(ValueError, match="missing: elsewhere.safetensors"):
        bert_jax.load(tmp_path)


@pytest.mark.parametrize(
    "content", ["{}", '{"weight_map": []}', '{"weight_map": {"a": 3}}']
)
def test_an_index_of_no_files_is_refused(tmp_path, content):
    made().save(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "model.safetensors.index.json").write_text(content)
    with pytest.raises(ValueError, match="has no weight_map of file names; fetch it"):
        bert_jax.load(tmp_path)


def test_the_current_directory_can_be_loaded(tmp_path, monkeypatch):
    model = made()
    model.save(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert_same_model(model, bert_jax.load("."))


def test_an_undefined_default_prompt_is_refused(tmp_path, tokenizer):
    model = made(Features, tokenizer=tokenizer)
    model.pooling = Pooling(prompt="a ")
    model.save(tmp_path)
    change(tmp_path / "config_sentence_transformers.json", prompts={})
    with pytest.raises(ValueError, match="has no prompt 'default', its default_prompt"):
        bert_jax.load(tmp_path)


def test_parameter_names_of_old_files_are_converted(tmp_path):
    model = made()
    model.save(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    old = {
        k.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): x
        for k, x in tensors.items()
    }
    old["bert.embeddings.position_ids"] = np.arange(16)[None]
    save_file(old, tmp_path / "model.safetensors")
    assert_same_model(model, bert_jax.load(tmp_path))


def test_half_precision_becomes_float32(tmp_path):
    made().save(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    half = {k: x.astype(np.float16) for k, x in tensors.items()}
    save_file(half, tmp_path / "model.safetensors")
    leaves = jax.tree.leaves(bert_jax.load(tmp_path).params)
    assert {str(x.dtype) for x in leaves} == {"float32"}


def test_compute_in_bfloat16_is_near_float32(tmp_path):
    made(Features).save(tmp_path)
    ids = np.arange(5, 12)[None]
    high = bert_jax.load(tmp_path)(input_ids=ids)
    low = bert_jax.load(tmp_path, dtype="bfloat16")(input_ids=ids)
    assert low.dtype == np.float32 and not (low == high).all()
    # 8 bits of mantissa, some tens of roundings.
    np.testing.assert_allclose(low, high, atol=0.05 * np.abs(high).max())


def test_flax_parameter_trees_load_for_every_kind_of_leaf(tmp_path):
    model = made()
    model.save(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    leaves = write_flax(tmp_path / "flax_model.msgpack", tensors)
    (tmp_path / "model.safetensors").unlink()
    assert_same_model(model, bert_jax.load(tmp_path))
    assert all(x.flags.c_contiguous for x in weights.read(tmp_path).values())
    whole = {name: np.ascontiguousarray(x) for name, x in leaves.items()}
    save_file(whole, tmp_path / "model.safetensors")
    (tmp_path / "flax_model.msgpack").unlink()
    assert_same_model(model, bert_jax.load(tmp_path))


@pytest.mark.parametrize("name", ["model.safetensors", "flax_model.msgpack"])
@pytest.mark.parametrize("is_named", [True, False])
def test_next_sentence_prediction_loads_as_a_classifier(tmp_path, name, is_named):
    """It computes the pair's logits of the model that was pre-trained with it."""
    model = made()
    model.save(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    tensors = {k: x for k, x in tensors.items() if not k.startswith("cls.predictions")}
    (tmp_path / "model.safetensors").unlink()
    if name == "model.safetensors":
        save_file(tensors, tmp_path / name)
    else:
        write_flax(tmp_path / name, tensors)
    architectures = ["BertForNextSentencePrediction"] if is_named else None
    change(tmp_path / "config.json", architectures=architectures)
    again = bert_jax.load(tmp_path)
    ids = np.array([[2, 7, 3, 9, 3]])
    np.testing.assert_array_equal(again(input_ids=ids), model(input_ids=ids)[1])
    again.save(tmp_path / "saved")
    assert_same_model(again, bert_jax.load(tmp_path / "saved"))


def write_flax(path, tensors):
    """The file of a Flax model of transformers 4."""
    leaves = {}
    for name, x in tensors.items():
        parent, leaf = name.rsplit(".", 1)
        if leaf == "weight" and "LayerNorm" in parent:
            leaf = "scale"
        elif leaf == "weight":
            leaf = "embedding" if "_embeddings" in parent else "kernel"
        leaves[f"{parent}.{leaf}"] = x.T if leaf == "kernel" else x
    tree = traverse_util.unflatten_dict(leaves, sep=".")
    path.write_bytes(serialization.msgpack_serialize(tree))
    return leaves


@pytest.mark.parametrize(
    "config, names",
    [
        (
            ModernBertConfig(31, 12, 20, 2, 3),
            {"pad": "pad", "cls": "cls", "sep": "sep", "bos": "cls", "eos": "sep"},
        ),
        (BertConfig(**TINY, model_type="albert"), {"bos": "cls", "eos": "sep"}),
    ],
)
def test_the_ids_of_special_tokens_are_saved(tmp_path, tokenizer, config, names):
    head = new_head(MaskedLM, config.build())
    Model.of(head, drawn(head), tokenizer).save(tmp_path)
    published = json.loads((tmp_path / "config.json").read_text())
    ids = {name: published[f"{name}_token_id"] for name in names}
    assert ids == {k: getattr(tokenizer, f"{v}_id") for k, v in names.items()}


def test_orbax_parameters_load_in_place_of_safetensors(tmp_path):
    model = made(Features, has_pooler=True)
    model.save(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    writer = orbax.StandardCheckpointer()
    writer.save(tmp_path / "params", model.params | {"extra": np.ones(2)})
    writer.wait_until_finished()
    with pytest.raises(ValueError, match="in 1 places: extra is unknown"):
        bert_jax.load(tmp_path)
    writer.save(tmp_path / "params", model.params, force=True)
    writer.wait_until_finished()
    assert_same_model(model, bert_jax.load(tmp_path))


def test_the_work_directory_of_a_run_loads_its_model(tmp_path):
    model = made()
    model.save(tmp_path / "model")
    (tmp_path / "config.json").write_text("{}")
    assert_same_model(model, bert_jax.load(tmp_path))


def test_tensors_of_other_heads_are_left_out_with_a_warning(tmp_path):
    model = made()
    model.save(tmp_path)
    change(tmp_path / "config.json", architectures=["BertForMaskedLM"])
    with pytest.warns(UserWarning, match="4 tensors belong to another head"):
        again = bert_jax.load(tmp_path)
    assert again.head == MaskedLM(model.encoder)
    assert_same(again.params["mlm"], model.params["mlm"])


def test_without_architectures_the_head_follows_from_the_tensors(tmp_path):
    for i, model in enumerate((made(), made(SpanClassifier), made(Features))):
        model.save(tmp_path / str(i))
        change(tmp_path / str(i) / "config.json", architectures=None)
        assert_same_model(model, bert_jax.load(tmp_path / str(i)))


def test_wrong_tensors_are_named_in_one_error(tmp_path):
    made().save(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors["cls.seq_relationship.bias"]
    tensors["bert.pooler.dense.weight"] = np.zeros((12, 13), np.float32)
    # Turned over it has the right number of elements, but not the right shape.
    name = "bert.encoder.layer.1.output.dense.weight"
    tensors[name] = np.ascontiguousarray(tensors[name].T)
    tensors["bert.surprise"] = np.zeros(1, np.float32)
    tensors["cls.predictions.decoder.weight"] = np.zeros((31, 12), np.float32)
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="do not fit config.json in 5 places") as error:
        bert_jax.load(tmp_path)
    for part in (
        "cls.seq_relationship.bias is missing",
        "bert.pooler.dense.weight is (12, 13), not (12, 12)",
        f"{name} is (20, 12), not (12, 20)",
        "bert.surprise is unknown",
        "cls.predictions.decoder.weight differs from bert.embeddings.word_embeddings",
    ):
        assert part in str(error.value)


def test_of_many_wrong_tensors_a_few_are_named(tmp_path):
    made().save(tmp_path)
    change(tmp_path / "config.json", hidden_size=24, intermediate_size=48)
    with pytest.raises(
        ValueError, match=r"in 4\d places: .*; .* .and 3\d more."
    ) as error:
        bert_jax.load(tmp_path)
    assert str(error.value).count("\n") <= 2 and len(str(error.value)) < 600


@pytest.mark.parametrize(
    "values, message",
    [
        ({"model_type": "gpt2"}, "model_type='gpt2' is unknown; .* bert, roberta"),
        ({"model_type": None}, "model_type=None is unknown"),
        ({"architectures": ["BertForPoetry"]}, r"\['BertForPoetry'\] is unknown"),
        ({"hidden_act": "gleu"}, "hidden_act='gleu' is unknown"),
        ({"num_attention_heads": 5}, "not a multiple of num_attention_heads=5"),
        ({"is_decoder": True}, "is_decoder=True is not supported"),
        ({"pruned_heads": {"0": [1]}}, r"pruned_heads={'0': \[1\]} is not supported"),
        ({"quantization_config": {"bits": 4}}, "quantization_config={'bits': 4} is no"),
        ({"position_embedding_type": "relative_key"}, "'relative_key' is not"),
        ({"hidden_size": "twelve"}, "hidden_size='twelve'"),
        ({"model_type": ["bert"]}, r"model_type=\['bert'\] is unknown"),
        ({"architectures": "BertModel"}, "architectures='BertModel' is unknown"),
        ({"num_attention_heads": 0}, "num_attention_heads=0; it must be at least 1"),
        (
            {"num_hidden_layers": 3},
            "encoder.layer.2.attention.self.key.bias is missing",
        ),
    ],
)
def test_a_wrong_config_is_refused_by_name(tmp_path, values, message):
    made().save(tmp_path)
    change(tmp_path / "config.json", **values)
    with pytest.raises(ValueError, match=message) as error:
        bert_jax.load(tmp_path)
    assert str(error.value).count("\n") <= 2


@pytest.mark.parametrize(
    "values, message",
    [
        ({"id2label": ["no", "yes"]}, "does not give a name to each number"),
        ({"id2label": {"0": "a", "2": "b"}}, "not number its 2 labels from 0 to 1"),
        ({"id2label": {"0": "a", "00": "b"}}, "not number its 2 labels from 0 to 1"),
        ({"id2label": {"0": "a", "1": "a"}}, "has the label 'a' twice; give each its"),
        ({"id2label": {"no": 0}}, "{'no': 0} in config.json does not give a name"),
        ({"id2label": None, "num_labels": "two"}, "num_labels='two' in config.json is"),
    ],
)
def test_wrong_labels_in_a_config_are_refused(tmp_path, values, message):
    made(SequenceClassifier, num_labels=2).save(tmp_path)
    change(tmp_path / "config.json", **values)
    with pytest.raises(ValueError, match=message):
        bert_jax.load(tmp_path)


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("config.json", b"{", "config.json is not JSON"),
        ("config.json", b"[]", "holds no JSON object"),
        ("config.json", b'{"a": {"b": 1, "b": 2}}', "the key 'b' is there twice"),
        ("config.json", b"\xff\xfe\x00", "config.json is not JSON"),
        ("model.safetensors", b"", "model.safetensors is damaged"),
        ("model.safetensors", b"\x00" * 40, "model.safetensors is damaged"),
        ("model.safetensors", b"\xff" * 40, "model.safetensors is damaged"),
        ("modules.json", b"{}", "is not a list of modules"),
        (
            "modules.json",
            b'[{"type": "sentence_transformers.models.LSTM", "path": "2_LSTM"}]',
            "has LSTM; only Transformer, Pooling, Dense, Normalize",
        ),
        (
            "modules.json",
            b'[{"type": "x.Normalize", "path": ""}, {"type": "x.Dense", "path": "3"}]',
            "has Normalize, Dense; only the order Transformer, Pooling, Dense, Norm",
        ),
        ("modules.json", b"[1]", "is not a list of modules"),
        (
            "modules.json",
            b'[{"type": "x.Transformer", "path": "../other"}]',
            "leads out of the directory",
        ),
        (
            "modules.json",
            b'[{"type": "x.Pooling", "path": "1_Pooling"}]',
            "1_Pooling has no config.json",
        ),
        ("modules.json", b'[{"type": "x.Transformer"}]', "is not a list of modules"),
        (
            "modules.json",
            b'[{"type": "x.Transformer", "path": "../other"}]',
            "leads out of the directory",
        ),
        ("tokenizer.json", b"{}", "tokenizer.json"),
    ],
)
def test_a_damaged_file_is_named(tmp_path, name, content, message, tokenizer):
    made(tokenizer=tokenizer).save(tmp_path)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message) as error:
        bert_jax.load(tmp_path)
    assert str(error.value).count("\n") <= 2


def test_a_truncated_file_is_refused(tmp_path):
    made().save(tmp_path)
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ValueError, match="model.safetensors is damaged"):
        bert_jax.load(tmp_path)


def test_weights_that_are_not_finite_are_refused(tmp_path):
    model = made()
    params = traverse_util.flatten_dict(model.params, sep="/")
    path = "encoder/layer_0/attention/query/kernel"
    params[path] = params[path].at[1, :2].set([np.nan, np.inf])
    model.params = traverse_util.unflatten_dict(params, sep="/")
    model.save(tmp_path)
    with pytest.raises(ValueError, match=f"2 of the 144 numbers of {path} are NaN"):
        bert_jax.load(tmp_path)


def test_pickles_are_refused_with_the_command_that_converts_them(tmp_path):
    made().save(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(ValueError, match="pytorch_model.bin is a pickle") as error:
        bert_jax.load(tmp_path)
    assert 'python -c "import torch' in str(error.value)
    assert str(error.value).count("\n") <= 2


def test_a_directory_without_weights_is_refused_with_the_remedy(tmp_path):
    made().save(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(ValueError, match="has no weights; it needs one of model.safe"):
        bert_jax.load(tmp_path)
    with pytest.raises(ValueError, match="config.json"):
        bert_jax.load(tmp_path.parent)


def test_a_name_that_cannot_be_fetched_has_no_traceback_of_the_hub(monkeypatch):
    def offline(*args, **options):
        raise OSError("a long story")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    with pytest.raises(ValueError, match="typo is not a directory, is not in") as error:
        bert_jax.load("name/typo")
    assert error.value.__suppress_context__ and error.value.__cause__ is None


@pytest.mark.parametrize("rows", [31, 40, 20])
def test_a_tokenizer_of_another_model_gives_a_warning(tmp_path, tokenizer, rows):
    config = BertConfig(**TINY | {"vocab_size": rows})
    made(Features, tokenizer, config=config).save(tmp_path)
    expected = [] if rows == 31 else [f"31 pieces, but the model has {rows}; take both"]
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        bert_jax.load(tmp_path)
    assert len(seen) == len(expected)
    assert all(text in str(x.message) for text, x in zip(expected, seen, strict=True))
    assert all(x.filename == __file__ for x in seen)


def test_a_name_is_searched_in_the_cache_of_the_hub(tmp_path, monkeypatch):
    home = tmp_path / "models--someone--tiny"
    model = made()
    model.save(home / "snapshots/abc")
    (home / "refs").mkdir()
    (home / "refs/main").write_text("abc")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert_same_model(model, bert_jax.load("someone/tiny"))
    with pytest.raises(ValueError, match="someone/else is not a directory, is not in"):
        bert_jax.load("someone/else")


@pytest.mark.parametrize("name", ["./nowhere", "/no/where", "no/such/thing", "a b"])
def test_a_missing_path_is_not_used_as_a_name_on_the_hub(name):
    with pytest.raises(ValueError, match="there is no directory"):
        bert_jax.load(name)


def test_a_head_that_a_family_does_not_publish_is_not_saved(tmp_path):
    config = BertConfig(**TINY, model_type="roberta", position_offset=1)
    with pytest.raises(ValueError, match="Pretraining is published by no roberta"):
        made(config=config).save(tmp_path)


def test_a_field_that_config_json_cannot_express_is_refused(tmp_path):
    model = made(SequenceClassifier, num_labels=2, hidden_act="relu")
    with pytest.raises(ValueError, match="hidden_act='relu'.*BertForSequence.*'tanh'"):
        model.save(tmp_path)


def test_a_run_that_is_not_there_is_not_looked_for_on_the_hub(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    with pytest.raises(ValueError, match="^there is no directory runs/labels; check"):
        bert_jax.load("runs/labels")
