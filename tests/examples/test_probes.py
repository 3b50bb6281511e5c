"""Laws of linear probes: sets of layers, states of texts and words, scores."""

import importlib.util
import json

import numpy as np
import pytest
from tiny import LETTERS, made, wordpiece

import bert_jax
from bert_jax.data import conll
from bert_jax.models import Bert, BertConfig, Features
from examples.probes.mixing import MixedRegression, scalar_mix
from examples.probes.probe import (
    TextProbe,
    WordProbe,
    combine,
    feature_sets,
    format_row,
)

pytest.importorskip("sklearn")

DEEP = BertConfig(
    vocab_size=len(LETTERS) + 1,
    hidden_size=12,
    num_hidden_layers=4,
    num_attention_heads=3,
    intermediate_size=20,
    max_position_embeddings=20,
    initializer_range=0.3,
)


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """The directory of a frozen model."""
    folder = tmp_path_factory.mktemp("start")
    tokenizer = wordpiece(folder, [*LETTERS, "##x"])
    made(Features(Bert(DEEP)), tokenizer).save(folder / "model")
    return folder / "model"


def test_sets_are_single_layers_the_last_four_and_all_of_them():
    sets = feature_sets(5)
    assert list(sets) == [
        *(f"layer_{i}" for i in range(6)),
        *("sum_last_four", "concat_last_four", "sum_all", "mix"),
    ]
    assert sets["layer_0"] == ((0,), "sum")
    assert sets["sum_last_four"] == ((2, 3, 4, 5), "sum")
    assert sets["concat_last_four"] == ((2, 3, 4, 5), "concatenate")
    assert sets["sum_all"] == ((1, 2, 3, 4, 5), "sum")
    assert sets["mix"] == ((0, 1, 2, 3, 4, 5), "mix")
    assert list(feature_sets(1)) == ["layer_0", "layer_1", "sum_all", "mix"]


def test_layers_are_added_up_or_concatenated_in_order():
    states = np.random.default_rng(0).normal(size=(2, 4, 3))
    np.testing.assert_array_equal(combine(states, (2,), "sum"), states[:, 2])
    np.testing.assert_allclose(
        combine(states, (1, 3), "sum"), states[:, 1] + states[:, 3]
    )
    both = combine(states, (1, 3), "concatenate")
    np.testing.assert_array_equal(both[:, :3], states[:, 1])
    np.testing.assert_array_equal(both[:, 3:], states[:, 3])
    np.testing.assert_array_equal(combine(states, (1, 3), "mix"), states[:, [1, 3]])


def test_a_mix_is_a_mean_by_the_softmax_of_weights_times_gamma():
    layers = np.random.default_rng(0).normal(size=(3, 4, 2)).astype(np.float32)
    weights = np.array([0.0, 1.0, -1.0], np.float32)
    shares = np.exp(weights) / np.exp(weights).sum()
    expected = 2 * sum(s * x for s, x in zip(shares, layers, strict=True))
    np.testing.assert_allclose(scalar_mix(layers, weights, 2.0), expected, rtol=1e-5)


def test_a_mix_takes_the_layer_that_tells_and_one_layer_is_scikit_learns():
    from sklearn.linear_model import LogisticRegression

    draw = np.random.default_rng(0)
    labels = np.array(["a", "b", "c"])[draw.integers(0, 3, 90)]
    features = draw.normal(size=(90, 3, 4)).astype(np.float32)
    features[:, 1, :3] += 2 * (labels[:, None] == ["a", "b", "c"])
    mixed = MixedRegression(C=0.1, iterations=100)
    mixed.fit(features, labels)
    assert mixed.shares.sum() == pytest.approx(1)
    assert mixed.shares[1] > 0.8
    assert (mixed.predict(features) == labels).mean() > 0.8
    single = MixedRegression(C=0.1, iterations=100)
    single.fit(features[:, 1:2], labels)
    x = features[:, 1]
    x = (x - x.mean(0)) / x.std(0)
    theirs = LogisticRegression(C=0.1).fit(x, labels)
    np.testing.assert_array_equal(single.predict(features[:, 1:2]), theirs.predict(x))


def texts_file(path, count, seed):
    """Texts that hold a q or not, and say so."""
    draw = np.random.default_rng(seed)
    rows = []
    for i in range(count):
        letters = [*draw.choice(list("abcdefgh"), 5), *"q" * (i % 2)]
        rows.append(f"{' '.join(letters)}\t{('no', 'yes')[i % 2]}\n")
    path.write_text("".join(rows))
    return str(path)


def words_file(path, count, seed, kind="PER"):
    """Sentences in which q is an entity, and an x behind it too."""
    draw = np.random.default_rng(seed)
    with path.open("w") as out:
        for _ in range(count):
            for word in draw.choice(["a", "b", "cx", "q x", "q"], draw.integers(1, 6)):
                label = f"B-{kind}" if word[0] == "q" else "O"
                for part in word.split():
                    print(part, label, sep="\t", file=out)
                    label = f"I-{kind}"
            print(file=out)
    return str(path)


def test_texts_are_classified_by_every_set_and_scores_are_written(start, tmp_path):
    probe = TextProbe(
        init_from=str(start),
        train=texts_file(tmp_path / "train.tsv", 80, 0),
        dev=texts_file(tmp_path / "dev.tsv", 30, 1),
        test=(texts_file(tmp_path / "other.tsv", 20, 2),),
        C=1.0,
    )
    rows = probe.run(tmp_path / "run")
    assert [(x["pooling"], x["features"]) for x in rows] == [
        (pooling, name) for pooling in ("cls", "mean") for name in feature_sets(4)
    ]
    for pooling in ("cls", "mean"):
        scores = [x["scores"] for x in rows if x["pooling"] == pooling]
        assert max(x["other"]["accuracy"] for x in scores) > 0.9
    # [CLS] without context is the same in every text.
    assert rows[0]["scores"]["eval"] == {"accuracy": 0.5}
    written = json.loads((tmp_path / "run/scores.json").read_text())
    assert written == {"model": str(start), "sets": rows}


def test_a_linear_rule_of_the_embeddings_is_learnt_and_whole_entities_count(
    start, tmp_path
):
    probe = WordProbe(
        init_from=str(start),
        train=words_file(tmp_path / "train.conll", 60, 0),
        dev=words_file(tmp_path / "dev.conll", 20, 1),
        test=(words_file(tmp_path / "other.conll", 20, 2, kind="LOC"),),
        features=("layer_0", "concat_last_four"),
        C=1.0,
    )
    rows = probe.run(tmp_path / "run")
    assert [x["features"] for x in rows] == ["layer_0", "concat_last_four"]
    # Persons are not places.
    assert rows[0]["scores"] == {"eval": {"f1": 1.0}, "other": {"f1": 0.0}}


def test_labels_other_than_entities_are_scored_by_accuracy_of_words(tmp_path):
    (tmp_path / "words.conll").write_text("a\tDET\ntree\tNOUN\n\ngrows\tVERB\n")
    probe = WordProbe()
    data = probe.read(tmp_path / "words.conll")
    predictions = np.array(["DET", "NOUN", "NOUN"])
    assert probe.score(data, predictions) == {"accuracy": pytest.approx(2 / 3)}


def test_a_word_has_the_states_of_its_first_piece_whatever_the_batch(start, tmp_path):
    file = tmp_path / "words.conll"
    file.write_text("ax\tO\nb\tO\n\nc\tO\nxx\tO\nd\tO\na\tO\nb\tO\n\nh\tO\n")
    model, sentences = bert_jax.load(start), conll.read(file)
    probe = WordProbe(batch_size=2)
    states_of_words = probe.states(model, sentences, "first")
    assert states_of_words.shape == (8, 5, 12)
    batch = model.tokenizer([" ".join(words) for words in sentences.words])
    # [CLS] a ##x b [SEP]; [CLS] c x ##x d a b [SEP]; [CLS] h [SEP]
    rows, places = [0, 0, 1, 1, 1, 1, 1, 2], [1, 3, 1, 2, 4, 5, 6, 1]
    states = np.asarray(model.hidden_states(**batch))[:, rows, places]
    np.testing.assert_allclose(states_of_words, states.swapaxes(0, 1), atol=1e-5)


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"init_from": None}, "init_from is missing; set it with --config.init_fr"),
        ({"dev": None}, "dev is missing; set it with --config.dev"),
        ({"C": 0.0}, "C=0.0 must be above 0"),
        ({"features": ("last",)}, "features has 'last'; this model has layer_0, lay"),
        ({"test": ("a/train.tsv",)}, "test has a file named 'train', which another"),
    ],
)
def test_a_wrong_field_is_refused_before_anything_is_computed(
    start, tmp_path, fields, message, monkeypatch
):
    file = texts_file(tmp_path / "train.tsv", 8, 0)
    settings = {"init_from": str(start), "train": file, "dev": file} | fields
    monkeypatch.setattr(TextProbe, "states", None)
    with pytest.raises(ValueError, match=message):
        TextProbe(**settings).run(tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_extra_is_named_where_scikit_learn_is_missing(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"pip install 'bert_jax\[experiments\]'"):
        TextProbe(init_from="a", train="b", dev="c").check()


def test_a_line_of_scores_names_the_set_and_every_split():
    scores = {"eval": {"f1": 0.5}, "test": {"f1": 0.25}}
    row = {"features": "layer_3", "pooling": "cls", "scores": scores}
    line = "layer_3 cls eval f1 0.5000 test f1 0.2500"
    assert format_row(row).split() == line.split()
