"""Laws of the verb `tag`."""

import numpy as np
import pytest
from tiny import made, wordpiece

from bert_jax.inference import tag
from bert_jax.inference.tag import Tag
from bert_jax.models import Bert, BertConfig, SequenceClassifier, TokenClassifier

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "##s", "##ing", "."]
WORDS += ["new", "york", "sing", "the"]
TINY = BertConfig(
    vocab_size=len(WORDS),
    hidden_size=12,
    num_hidden_layers=1,
    num_attention_heads=3,
    intermediate_size=20,
    max_position_embeddings=9,
    initializer_range=0.5,
)
LABELS = ("O", "B-LOC", "I-LOC")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return wordpiece(tmp_path_factory.mktemp("vocabulary"), WORDS)


@pytest.fixture(scope="module")
def model(tokenizer):
    return made(TokenClassifier(Bert(TINY), num_labels=3), tokenizer, LABELS)


def test_a_word_has_the_label_of_its_first_piece_and_its_place_in_the_text(model):
    text = "The  sings, New York."
    logits = np.asarray(model(**model.tokenizer([text])))[0]
    # [CLS] the sing ##s [UNK] new york . [SEP]
    firsts = logits[[1, 2, 4, 5, 6, 7]]
    probabilities = np.exp(firsts) / np.exp(firsts).sum(1, keepdims=True)
    tags = model.tag(text)
    assert [tag.word for tag in tags] == ["The", "sings", ",", "New", "York", "."]
    assert [text[tag.start : tag.end] for tag in tags] == [tag.word for tag in tags]
    assert [tag.label for tag in tags] == [LABELS[i] for i in probabilities.argmax(1)]
    expected = probabilities.max(1)
    np.testing.assert_allclose([tag.probability for tag in tags], expected, 1e-5)


def test_tags_of_a_text_do_not_depend_on_its_batch(model):
    texts = ["new york .", "", "the sings singing", "york", "the new york sings"]
    together = model.tag(texts, batch_size=2)
    assert together[1] == []
    for text, tags in zip(texts, together, strict=True):
        alone = model.tag(text)
        assert [tag[:4] for tag in tags] == [tag[:4] for tag in alone]
        np.testing.assert_allclose([t[4] for t in tags], [t[4] for t in alone], 1e-5)


def test_every_word_of_a_text_beyond_the_positions_is_tagged(model):
    words = ["the", "new", "york", "sings"] * 5
    tags = model.tag(" ".join(words))
    assert [tag.word for tag in tags] == words
    # Its first three words are read with those behind them, as far as they fit.
    start = model.tag("the new york sings the new")
    assert [tag[:4] for tag in tags[:3]] == [tag[:4] for tag in start[:3]]
    np.testing.assert_allclose(
        [tag.probability for tag in tags[:3]], [t.probability for t in start[:3]], 1e-5
    )


def test_a_list_of_words_is_tagged_as_the_text_it_makes(model):
    texts = ["the sings new york", "york", "new york . " * 7]
    together = model.tag([text.split() for text in texts])
    for tags, expected in zip(together, model.tag(texts), strict=True):
        assert [tag[:4] for tag in tags] == [tag[:4] for tag in expected]
    (tags,) = model.tag([["sings.", "\u200d", "New York"]])
    assert [tag.word for tag in tags] == ["sings.", "\u200d", "New York"]
    assert [tag[2:4] for tag in tags] == [(0, 6), (7, 8), (9, 17)]
    assert model.tag([[], ["york"]])[0] == [] and model.tag([]) == []


def test_entities_are_the_words_that_labels_mark_together(model):
    texts = ["new york sings", "the sings , New York.", ""]
    for text, entities in zip(texts, model.entities(texts), strict=True):
        tags = model.tag(text)
        assert [x[:4] for x in entities] == [x[:4] for x in model.entities(text)]
        assert [text[x.start : x.end] for x in entities] == [x.text for x in entities]
        marked = [tag for tag in tags if tag.label != "O"]
        inside = [
            x for x in marked if any(e.start <= x.start < e.end for e in entities)
        ]
        assert inside == marked
    words = [Tag("New", "B-LOC", 4, 7, 0.8), Tag("York", "I-LOC", 8, 12, 0.6)]
    (merged,) = tag._merge("the New York", [Tag("the", "O", 0, 3, 0.9), *words])
    assert merged[:4] == ("New York", "LOC", 4, 12)
    assert merged.probability == pytest.approx(0.7)


def test_labels_that_mark_no_entities_are_refused(tokenizer):
    nouns = made(TokenClassifier(Bert(TINY), 2), tokenizer, ("NOUN", "VERB"))
    with pytest.raises(ValueError, match="its labels are NOUN, VERB, and not O, B-PER"):
        nouns.entities("new york")


def test_labels_without_names_are_numbered(tokenizer):
    model = made(TokenClassifier(Bert(TINY), num_labels=2), tokenizer)
    assert model.tag("york")[0].label in ("LABEL_0", "LABEL_1")


def test_other_heads_and_wrong_texts_are_errors(model, tokenizer):
    other = made(SequenceClassifier(Bert(TINY), num_labels=2), tokenizer)
    message = "cannot tag words: its head is for classes of texts; train one with"
    with pytest.raises(ValueError, match=message):
        other.tag("york")
    for wrong, message in (
        ([3], r"texts\[0\] is 3, not a string"),
        (["york", ["york"]], r"texts\[1\] is \['york'\], not a string"),
        ([["york", None]], r"texts\[0\]\[1\] is None, not a string"),
    ):
        with pytest.raises(ValueError, match=message):
            model.tag(wrong)
    with pytest.raises(ValueError, match="batch_size=0; it must be at least 1"):
        model.tag("york", batch_size=0)
