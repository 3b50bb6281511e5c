"""Laws of one word in many contexts."""

import numpy as np
import pytest
from tiny import LETTERS, TINY, made, wordpiece

from bert_jax import views
from bert_jax.models import Bert, BertConfig, Features

TEXTS = ["a b c", "d", "B, e", "c b b"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    words = [*LETTERS, ",", "##b"]
    tokenizer = wordpiece(tmp_path_factory.mktemp("vocabulary"), words)
    two = {"num_hidden_layers": 2, "vocab_size": len(words)}
    return made(Features(Bert(BertConfig(**vars(TINY) | two))), tokenizer)


def test_a_word_is_found_at_all_its_places_in_any_case(model):
    word_map = model.word_map("b", TEXTS, groups=["x", "y", "z", "x"])
    assert word_map.texts == [TEXTS[0], TEXTS[2], TEXTS[3], TEXTS[3]]
    assert word_map.spans.tolist() == [[2, 3], [0, 1], [2, 3], [4, 5]]
    assert word_map.groups == ["x", "z", "x", "x"]
    states = np.asarray(model.hidden_states(**model.tokenizer("c b b")))[:, 0]
    np.testing.assert_allclose(word_map.vectors[:, 2:], states[:, 2:4], atol=1e-5)


def test_self_similarity_and_others_are_mean_cosines(model):
    word_map = model.word_map("b", TEXTS)
    for layer, own in enumerate(word_map.self_similarity()):
        assert own == pytest.approx(views.mean_cosine(word_map.vectors[layer]))
    states = [
        np.asarray(model.hidden_states(**model.tokenizer(t)))[:, 0] for t in TEXTS
    ]
    # a, c, d, the comma is none, e
    first = np.stack(
        [states[0][:, 1], states[0][:, 3], states[1][:, 1], states[2][:, 3]]
    )
    expected = [views.mean_cosine(first[:, layer]) for layer in range(3)]
    np.testing.assert_allclose(word_map.others, expected, atol=1e-5)


def test_points_are_the_principal_components_of_a_layer(model):
    word_map = model.word_map("b", TEXTS)
    points, shares = word_map.points(1)
    expected = views.principal_components(word_map.vectors[1])
    np.testing.assert_array_equal(points, expected[0])
    assert points.shape == (4, 2) and 0 < shares.sum() <= 1.0001


def test_a_page_of_contexts_is_text_and_no_markup(model, tmp_path):
    hostile = "b </script><script>hacked=1</script> b"
    model.word_map("b", [hostile], groups=["<b>"]).save_html(tmp_path / "b.html")
    html = (tmp_path / "b.html").read_text("utf-8")
    assert html.count("</script") == 3 and "<b>" not in html
    assert model.word_map("b", TEXTS)._repr_html_().startswith("<iframe")


@pytest.mark.parametrize(
    "word, texts, groups, message",
    [
        ("q", TEXTS, None, "'q' occurs 0 times as a word of its own in 4 texts"),
        ("e", TEXTS, None, "'e' occurs 1 time as a word of its own in 4 texts"),
        ("b", TEXTS, ["x"], "1 group came with 4 texts; give one for each"),
        ("b", [], None, "'b' occurs 0 times as a word of its own in 0 texts"),
    ],
)
def test_a_word_that_does_not_occur_twice_is_an_error(
    model, word, texts, groups, message
):
    with pytest.raises(ValueError, match=message):
        model.word_map(word, texts, groups)
