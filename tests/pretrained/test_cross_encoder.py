"""Directories of cross-encoders: the activation of scores, in and out."""

import json

import numpy as np
import pytest
from tiny import LETTERS, TINY, made, wordpiece

import bert_jax
from bert_jax.models import Bert, SequenceClassifier
from bert_jax.pretrained import cross_encoder

PAIRS = [("a b", "c d e"), ("q", "r s"), ("a", "b c d e f g h"), ("t u", "v")]
TORCH = "torch.nn.modules."


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A function that saves a random model with scores of some activation."""
    tokenizer = wordpiece(tmp_path_factory.mktemp("vocabulary"), LETTERS)

    def save(folder, num_labels=1, activation=None):
        model = made(SequenceClassifier(Bert(TINY), num_labels), tokenizer)
        model.params["classifier"]["kernel"] *= 3
        if activation:
            model.extra = cross_encoder.declared(activation)
        model.save(folder)
        return model

    return save


def change(file, **fields):
    content = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps(content | fields))


@pytest.mark.parametrize(
    "file, fields",
    [
        ("config.json", {"sbert_ce_default_activation_function": TORCH + "linear."}),
        ("config.json", {"sentence_transformers": {"activation_fn": "torch.nn."}}),
        (
            "config_sentence_transformers.json",
            {"model_type": "CrossEncoder", "activation_fn": TORCH + "linear."},
        ),
    ],
)
def test_the_activation_of_each_version_is_read_and_saved(
    file, fields, saved, tmp_path
):
    model = saved(tmp_path / "a")
    nested = {k: {**x} if isinstance(x, dict) else x for k, x in fields.items()}
    for holder in (nested, *(x for x in nested.values() if isinstance(x, dict))):
        for name, value in holder.items():
            if isinstance(value, str) and value.startswith("torch"):
                holder[name] = value + "Identity"
    change(tmp_path / "a" / file, **nested)
    modules = [{"idx": 0, "name": "0", "path": "", "type": "x.Transformer"}]
    if "model_type" in fields:
        (tmp_path / "a/modules.json").write_text(json.dumps(modules))
    read = bert_jax.load(tmp_path / "a")
    assert cross_encoder.activation(read.extra) == "Identity" and not read.pooling
    scores = [x.score for x in read.rank("a b", ["c d e", "r s"])]
    logits = model.classify([("a b", "c d e"), ("a b", "r s")])
    np.testing.assert_allclose(scores, sorted(logits)[::-1], atol=1e-6)
    read.save(tmp_path / "b")
    again = json.loads((tmp_path / "b/config.json").read_text())
    assert again["sentence_transformers"] == {
        "activation_fn": "torch.nn.modules.linear.Identity"
    }
    assert "text-ranking" in (tmp_path / "b/README.md").read_text()


def test_a_score_without_an_activation_is_a_sigmoid(saved, tmp_path):
    model = saved(tmp_path / "a")
    (ranked,) = model.rank("a b", ["c d e"])
    (logit,) = model.classify([("a b", "c d e")])
    assert ranked.score == pytest.approx(1 / (1 + np.exp(-logit)), abs=1e-6)


@pytest.mark.parametrize(
    "file, fields, message",
    [
        (
            "config.json",
            {"sentence_transformers": {"activation_fn": "torch.nn.Softplus"}},
            "activation_fn='torch.nn.Softplus', which is not supported; only Identity",
        ),
        (
            "config.json",
            {"sentence_transformers": {"activation_fn": "os.Identity"}},
            "activation_fn='os.Identity', which is not supported",
        ),
        (
            "config_sentence_transformers.json",
            {"model_type": "CrossEncoder", "prompts": {"q": "z"}}
            | {"default_prompt_name": "q"},
            "the default prompt 'z'; of a CrossEncoder none is supported",
        ),
    ],
)
def test_scores_that_would_be_others_are_refused(
    file, fields, message, saved, tmp_path
):
    saved(tmp_path / "a")
    modules = [{"idx": 0, "name": "0", "path": "", "type": "x.Transformer"}]
    (tmp_path / "a/modules.json").write_text(json.dumps(modules))
    change(tmp_path / "a" / file, **fields)
    with pytest.raises(ValueError, match=message):
        bert_jax.load(tmp_path / "a")


def test_other_modules_of_a_cross_encoder_are_refused(saved, tmp_path):
    saved(tmp_path / "a")
    change(tmp_path / "a/config_sentence_transformers.json", model_type="CrossEncoder")
    kinds = ("Transformer", "Pooling", "Dense")
    modules = [{"path": "", "type": f"x.{kind}"} for kind in kinds]
    (tmp_path / "a/modules.json").write_text(json.dumps(modules))
    message = "has Transformer, Pooling, Dense; of a CrossEncoder only Transformer"
    with pytest.raises(ValueError, match=message):
        bert_jax.load(tmp_path / "a")


@pytest.mark.parity
@pytest.mark.parametrize("activation", ["Identity", "Sigmoid", None])
@pytest.mark.parametrize("num_labels", [1, 3])
def test_scores_are_those_of_sentence_transformers_in_both_directions(
    num_labels, activation, saved, tmp_path
):
    library = pytest.importorskip("sentence_transformers")
    model = saved(tmp_path / "ours", num_labels, activation)
    model.max_length = 9
    model.save(tmp_path / "ours")
    theirs = library.CrossEncoder(str(tmp_path / "ours"), device="cpu")
    softmax = num_labels > 1 and activation != "Sigmoid"
    expected = theirs.predict(PAIRS, apply_softmax=softmax)
    assert np.ptp(expected, axis=0).min() > 0.01
    theirs.save(str(tmp_path / "theirs"))
    for one in (model, bert_jax.load(tmp_path / "theirs")):
        scores = scores_of(one, num_labels)
        np.testing.assert_allclose(scores, expected, atol=1e-5)
    if num_labels == 1:
        query, documents = "a b", ["c d e", "r s", "q q q", "t"]
        ours = model.rank(query, documents, k=3)
        ranked = theirs.rank(query, documents, top_k=3)
        assert [x.number for x in ours] == [x["corpus_id"] for x in ranked]


def scores_of(model, num_labels):
    with pytest.warns(UserWarning, match="cut"):
        if num_labels > 1:
            rows = model.classify(PAIRS)
            return [[dict(row)[f"LABEL_{i}"] for i in range(3)] for row in rows]
        return [model.rank(one, [two])[0].score for one, two in PAIRS]
