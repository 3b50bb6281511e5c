"""XLNet with the verbs and in fine-tuning: padding in front, [CLS] at the end."""

import json
import shutil
import string

import jax.numpy as jnp
import numpy as np
import pytest
from tiny import made, written

import bert_jax
from bert_jax import pretrained
from bert_jax.data.ragged import RaggedRows
from bert_jax.models import (
    Features,
    MultipleChoice,
    PermutationLM,
    SequenceClassifier,
    SpanClassifier,
    TokenClassifier,
    XLNetConfig,
)
from bert_jax.tokenizers import SentencePiece
from bert_jax.tokenizers.vocabulary import XLNET

TEXTS = ["a q b", "c", "d e f g h a b c d e", "b b"]


@pytest.fixture(scope="module")
def tokenizer():
    texts = (" ".join(string.ascii_lowercase) for _ in range(30))
    return SentencePiece.train(texts, 33, specials=XLNET)


@pytest.fixture(scope="module")
def encoder(tokenizer):
    return XLNetConfig(
        vocab_size=tokenizer.vocab_size,
        d_model=12,
        n_layer=2,
        n_head=3,
        d_inner=20,
        dropout=0.0,
        initializer_range=0.2,
        pad_token_id=tokenizer.pad_id,
        max_position_embeddings=20,
    ).build()


def test_a_trained_tokenizer_makes_xlnets_rows(tokenizer):
    batch = tokenizer(["a b", "c"], ["d", "e"])
    ends = batch["input_ids"][:, -2:].tolist()
    assert ends == [[tokenizer.sep_id, tokenizer.cls_id]] * 2
    assert batch["token_type_ids"][:, -2:].tolist() == [[1, 2]] * 2
    assert batch["attention_mask"][1, 0] == 0 and tokenizer.specials == XLNET


def test_rows_are_padded_on_the_side_of_the_tokenizer():
    rows = [np.array([1, 2, 3]), np.array([4])]
    settings = {"fill": {"x": 9}, "columns": {}, "max_length": 4}
    left = RaggedRows({"x": rows}, **settings, pads_left=True).gather([1, 0], 4)
    assert left["x"].tolist() == [[9, 9, 9, 4], [9, 1, 2, 3]]
    assert left["attention_mask"].tolist() == [[0, 0, 0, 1], [0, 1, 1, 1]]
    right = RaggedRows({"x": rows}, **settings).gather([1, 0], 4)
    assert right["x"].tolist() == [[4, 9, 9, 9], [1, 2, 3, 9]]


def test_results_of_a_text_do_not_depend_on_its_batch(tokenizer, encoder):
    classifier = pretrained.new_head(SequenceClassifier, encoder, num_labels=3)
    model = made(classifier, tokenizer)
    together = model.classify(TEXTS)
    for text, labels in zip(TEXTS, together, strict=True):
        for x, y in zip(labels, model.classify(text), strict=True):
            assert x.name == y.name and abs(x.probability - y.probability) < 1e-5
    vectors = made(Features(encoder), tokenizer).embed(TEXTS)
    alone = made(Features(encoder), tokenizer).embed(TEXTS[1])
    np.testing.assert_allclose(vectors[1:2], alone, atol=1e-5)


def test_the_classifier_reads_the_last_token(tokenizer, encoder):
    head = pretrained.new_head(SequenceClassifier, encoder, num_labels=3)
    assert (head.pooling, head.hidden_act, head.rate) == ("last", "tanh", 0.1)
    model = made(head, tokenizer)
    batch = tokenizer(TEXTS)
    x = encoder.apply({"params": model.params["encoder"]}, **batch)[:, -1]
    for name, act in (("pooler", jnp.tanh), ("classifier", lambda x: x)):
        layer = model.params[name]
        x = act(x @ layer["kernel"] + layer["bias"][None])
    np.testing.assert_allclose(model(**batch), x, atol=1e-5)


def test_texts_that_are_too_long_keep_their_end(tokenizer, encoder):
    head = pretrained.new_head(SequenceClassifier, encoder, num_labels=3)
    model = made(head, tokenizer)
    long = " ".join("abcdefgh" * 4)
    with pytest.warns(UserWarning, match="cut 1 of 2 texts to 20 tokens"):
        cut = model.classify([long, "a"])
    row = tokenizer(long, max_length=20)
    assert row["input_ids"][0, -1] == tokenizer.cls_id
    shares = jnp.sort(jnp.exp(model(**row)[0]))[::-1]
    probabilities = [label.probability for label in cut[0]]
    np.testing.assert_allclose(probabilities, shares / shares.sum(), atol=1e-5)


def test_a_mask_is_predicted_from_all_other_words(tokenizer, encoder):
    model = made(pretrained.new_head(PermutationLM, encoder), tokenizer)
    one, two = model.fill_mask(["a <mask> c", "b <mask> d <mask>"], k=4)
    assert len(one) == 1 and len(two) == 2 and len(two[0]) == 4
    batch = tokenizer("a <mask> c")
    place = np.nonzero(batch["input_ids"][0] == tokenizer.mask_id)[0]
    length = batch["input_ids"].shape[1]
    hidden = np.zeros((1, length, length))
    hidden[:, :, place] = 1
    logits = model(**batch, positions=place[None], perm_mask=hidden)
    shares = jnp.exp(logits[0, 0]) / jnp.exp(logits[0, 0]).sum()
    probabilities = [guess.probability for guess in one[0]]
    np.testing.assert_allclose(probabilities, jnp.sort(shares)[::-1][:4], atol=1e-5)


def test_attention_shows_every_layer_and_head(tokenizer, encoder):
    model = made(Features(encoder), tokenizer)
    attention = model.attention("a b", "c")
    length = len(attention.tokens)
    assert attention.tokens[-1] == "<cls>" and "<pad>" not in attention.tokens
    assert attention.weights.shape == (2, 3, length, length)
    np.testing.assert_allclose(attention.weights.sum(-1), 1, atol=1e-5)
    assert model.hidden_states(**tokenizer(["a b"])).shape[0] == 3


@pytest.mark.slow
def test_the_other_verbs_return_results(tokenizer, encoder):
    tagger = pretrained.new_head(TokenClassifier, encoder, num_labels=2)
    tags = made(tagger, tokenizer, ("O", "B-X")).tag(["a b c", "d"])
    assert [len(words) for words in tags] == [3, 1]
    reader = made(pretrained.new_head(SpanClassifier, encoder), tokenizer)
    assert reader.answer("a b", "c d e f").text in "c d e f"
    chooser = made(pretrained.new_head(MultipleChoice, encoder), tokenizer)
    best = chooser.choose("a", ["b c", "d e f g"])
    assert {choice.text for choice in best} == {"b c", "d e f g"}


def rows_of(folder):
    """Files to train on and to evaluate on, which tell whether there is a q."""
    files = {name: folder / f"{name}.tsv" for name in ("train", "dev")}
    for seed, file in enumerate(files.values()):
        written(file, (192, 40)[seed], seed)
    return files


@pytest.fixture(scope="module")
def saved(tokenizer, encoder, tmp_path_factory):
    """The directory of a classifier, and the classifier."""
    head = pretrained.new_head(SequenceClassifier, encoder, num_labels=2)
    model = made(head, tokenizer, ("no", "yes"))
    folder = tmp_path_factory.mktemp("xlnet") / "model"
    model.save(folder)
    return folder, model


@pytest.mark.slow
def test_xlnet_is_fine_tuned_from_a_directory(tokenizer, encoder, tmp_path):
    folder = tmp_path
    made(Features(encoder), tokenizer).save(folder / "start")
    model = bert_jax.finetune(
        folder / "start",
        "classify",
        **rows_of(folder),
        epochs=6,
        learning_rate=1e-2,
        batch_size=16,
        max_length=16,
        workdir=folder / "run",
        keep_checkpoints=True,
    )
    scores = json.loads((folder / "run/scores.json").read_text())["scores"]
    assert scores["eval"]["accuracy"] > 0.9
    assert model.classify("a b q")[0].name == "yes"
    again = bert_jax.load(folder / "run/model")
    assert again.classify(TEXTS) == model.classify(TEXTS)
    step = bert_jax.load(folder / "run/checkpoints")
    assert step.head.pooling == "last" and step.config == again.config


def test_a_saved_config_has_the_fields_of_transformers(saved):
    config = json.loads((saved[0] / "config.json").read_text())
    assert config["architectures"] == ["XLNetForSequenceClassification"]
    assert (config["model_type"], config["summary_type"]) == ("xlnet", "last")
    assert (config["d_model"], config["n_layer"], config["n_head"]) == (12, 2, 3)
    assert "max_position_embeddings" not in config and "hidden_size" not in config


@pytest.mark.parametrize(
    "change, message",
    [
        ({"bi_data": True}, "bi_data=True is not supported; only False is"),
        ({"n_head": 4}, "rel_attn.k.* is \\(12, 3, 4\\), not \\(12, 12\\)"),
        ({"summary_use_proj": False}, "summary_use_proj=False is not supported"),
    ],
)
def test_an_unsupported_config_is_an_error(saved, tmp_path, change, message):
    shutil.copytree(saved[0], tmp_path / "model")
    file = tmp_path / "model/config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(ValueError, match=message):
        bert_jax.load(tmp_path / "model")


def test_old_names_of_fields_are_read(saved, tmp_path):
    shutil.copytree(saved[0], tmp_path / "model")
    file = tmp_path / "model/config.json"
    text = file.read_text().replace('"vocab_size"', '"n_token"')
    file.write_text(text.replace('"d_model"', '"hidden_size"'))
    assert bert_jax.load(tmp_path / "model").classify(TEXTS) == saved[1].classify(TEXTS)


@pytest.mark.parity
def test_transformers_computes_the_same_from_a_saved_directory(saved):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    path, model = saved
    theirs, report = transformers.AutoModelForSequenceClassification.from_pretrained(
        path, output_loading_info=True
    )
    assert not any(report.values()), report
    batch = transformers.AutoTokenizer.from_pretrained(path)(
        TEXTS, padding=True, return_tensors="pt"
    )
    with torch.no_grad():
        logits = theirs.eval()(**batch).logits
    np.testing.assert_allclose(model(**model.tokenizer(TEXTS)), logits, atol=1e-4)
