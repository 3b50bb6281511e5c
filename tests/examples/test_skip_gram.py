"""Laws of the skip-gram example."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import LETTERS, TINY, made, wordpiece

from bert_jax.models import Bert, Features
from examples.skip_gram import neighbours
from examples.skip_gram.config import get_config
from examples.skip_gram.neighbours import Comparison
from examples.skip_gram.skip_gram import (
    SkipGram,
    Training,
    loss,
    noise,
    pairs,
    stay_rate,
)


def test_the_gradient_is_that_of_the_paper():
    draw = np.random.default_rng(0)
    params = {
        name: jnp.asarray(draw.normal(size=(5, 3)), "float32")
        for name in ("word", "context")
    }
    word, context, negatives = 1, 2, [0, 4]
    grads = jax.grad(loss)(
        params, jnp.array([word]), jnp.array([context]), jnp.array([negatives])
    )
    v, u = params["word"][word], params["context"]
    # d/dv -log s(u.v) = (s(u.v) - 1) u, and s(u.v) u for a negative.
    error = {
        i: jax.nn.sigmoid(u[i] @ v) - (i == context) for i in (context, *negatives)
    }
    expected = {"word": np.zeros((5, 3)), "context": np.zeros((5, 3))}
    expected["word"][word] = sum(error[i] * u[i] for i in error)
    for i in error:
        expected["context"][i] = error[i] * v
    for name in expected:
        np.testing.assert_allclose(grads[name], expected[name], atol=1e-6)


def test_negatives_follow_counts_to_three_quarters_and_frequent_words_are_thinned():
    counts = np.array([81, 16, 1])
    np.testing.assert_allclose(noise(counts), np.array([27, 35, 36]) / 36)
    np.testing.assert_allclose(
        stay_rate(np.array([96, 4]), 0.04), [(0.04 / 0.96) ** 0.5, 1]
    )


def test_pairs_stay_in_their_sentence_and_window():
    stream, sentence = np.arange(10), np.repeat([0, 1], [4, 6])
    drawn = pairs(stream, sentence, 3, np.random.default_rng(0))
    distance = np.abs(drawn[:, 0] - drawn[:, 1])
    assert set(distance.tolist()) == {1, 2, 3}
    assert (sentence[drawn[:, 0]] == sentence[drawn[:, 1]]).all()
    # A distance of 1 is always within reach: 2 * (3 + 5) pairs.
    assert (distance == 1).sum() == 16


def toy(count, seed=0):
    """Sentences in which film and movie are interchangeable, and so are cat and dog."""
    draw = np.random.default_rng(seed)
    frames = (
        ("the {} was a long bore", ("film", "movie")),
        ("my {} eats fish daily", ("cat", "dog")),
    )
    for _ in range(count):
        frame, words = frames[draw.integers(2)]
        yield frame.format(words[draw.integers(2)]).split()


def test_interchangeable_words_become_neighbours(tmp_path):
    config = Training(
        size=8, batch_size=64, epochs=2, threshold=1.0, window=3, learning_rate=2e-2
    )
    model = config.train(toy(600))
    assert model.nearest("film", 1) == ["movie"] and model.nearest("dog", 1) == ["cat"]
    model.save(tmp_path)
    again = SkipGram.load(tmp_path)
    assert again.words == model.words
    np.testing.assert_array_equal(again.vectors, model.vectors)
    with pytest.raises(ValueError, match="'plot' is none of the 13 words"):
        model.nearest("plot")


def test_the_nearest_word_is_the_one_with_the_nearest_place():
    pool = [
        (["a", "b", "."], np.array([[[1.0, 0], [0, 1], [5, 1]]])),
        (["c", "b"], np.array([[[2.0, 2], [9, 1]]])),
    ]
    assert neighbours.nearest(np.array([3.0, 0]), "a", pool, 0, 2) == ["b", "c"]


def test_a_comparison_has_a_line_for_each_layer_and_a_map_of_each_word(tmp_path):
    text = tmp_path / "text.txt"
    letters = np.random.default_rng(0).choice(list("abcdefgh"), (40, 6))
    text.write_text("\n".join(" ".join(["q", *row]) + "." for row in letters))
    model = made(Features(Bert(TINY)), wordpiece(tmp_path, LETTERS))
    model.save(tmp_path / "model")
    vectors = np.random.default_rng(1).normal(size=(9, 4))
    SkipGram(tuple("qabcdefgh"), vectors).save(tmp_path / "static")
    config = get_config("compare")
    config.text, config.words, config.sentences, config.k = (str(text),), ("q",), 2, 2
    config.skip_gram, config.bert = str(tmp_path / "static"), str(tmp_path / "model")
    report = config.run(tmp_path / "run")
    assert report.count("BERT, layer 0") == report.count("BERT, layer 1") == 2
    assert report.count("skip-gram, in every sentence: ") == 1
    assert (tmp_path / "run/neighbours.md").read_text() == report
    assert "<html" in (tmp_path / "run/q.html").read_text()
    with pytest.raises(ValueError, match="'z' is in 0 sentences of 5 to 30 words of"):
        Comparison(**{**vars(config), "words": ("z",)}).run(tmp_path / "run")


def test_wrong_fields_are_refused_with_the_remedy(tmp_path):
    with pytest.raises(
        ValueError, match="'test' is unknown; choose one of train, compar"
    ):
        get_config("test")
    with pytest.raises(ValueError, match="text is missing; set it with --config.text"):
        Training().run(tmp_path)
    with pytest.raises(
        ValueError, match="skip_gram is missing; set it with --config.sk"
    ):
        Comparison(text=("a",)).run(tmp_path)
    with pytest.raises(
        ValueError, match="0 words occur 5 times in the text; give more"
    ):
        Training().train(iter([["a", "b"]]))
