"""Laws of the verb `classify`."""

import numpy as np
import pytest
from tiny import LETTERS, made, wordpiece

from bert_jax.models import Bert, BertConfig, SequenceClassifier, TokenClassifier

TINY = BertConfig(
    vocab_size=len(LETTERS),
    hidden_size=12,
    num_hidden_layers=1,
    num_attention_heads=3,
    intermediate_size=20,
    max_position_embeddings=20,
    initializer_range=0.5,
)
TEXTS = ["a b c d e f g", "a", "z y x", "q r s t u v w x k k k k"]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return wordpiece(tmp_path_factory.mktemp("vocabulary"), LETTERS)


@pytest.fixture(scope="module")
def model(tokenizer):
    head = SequenceClassifier(Bert(TINY), num_labels=3)
    return made(head, tokenizer, ("bad", "so so", "good"))


def test_classes_have_the_softmax_of_their_logits_the_likeliest_first(model):
    logits = np.asarray(model(**model.tokenizer(TEXTS)))
    expected = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    for row, labels in zip(expected, model.classify(TEXTS), strict=True):
        assert [label.name for label in labels] == [
            model.labels[i] for i in np.argsort(-row)
        ]
        np.testing.assert_allclose(
            [x.probability for x in labels], -np.sort(-row), 1e-5
        )


def test_the_classes_of_a_text_do_not_depend_on_its_batch(model):
    together = model.classify(TEXTS, batch_size=2)
    for text, labels in zip(TEXTS, together, strict=True):
        alone = dict(model.classify(text))
        assert dict(labels) == pytest.approx(alone, abs=1e-6)


def test_a_pair_is_a_tuple_and_its_order_counts(model):
    pairs = [("a b", "c d e"), ("c d e", "a b")]
    batch = model.tokenizer(["a b", "c d e"], ["c d e", "a b"])
    logits = np.asarray(model(**batch))
    labels = model.classify(pairs)
    assert [x[0].name for x in labels] == [model.labels[i] for i in logits.argmax(1)]
    assert dict(labels[0]) != dict(labels[1])
    alone = dict(model.classify(pairs[0]))
    assert alone == pytest.approx(dict(labels[0]), abs=1e-6)
    assert model.classify([]) == []


def test_one_output_is_a_number_and_several_labels_at_once_are_independent(tokenizer):
    number = made(SequenceClassifier(Bert(TINY), num_labels=1), tokenizer)
    value = np.asarray(number(**tokenizer("a b")))[0, 0]
    assert number.classify("a b") == pytest.approx(float(value), abs=1e-6)
    head = SequenceClassifier(
        Bert(TINY), num_labels=2, problem_type="multi_label_classification"
    )
    several = made(head, tokenizer)
    logits = np.asarray(several(**tokenizer("a b")))[0]
    probabilities = dict(several.classify("a b"))
    expected = 1 / (1 + np.exp(-logits))
    assert [probabilities["LABEL_0"], probabilities["LABEL_1"]] == pytest.approx(
        list(expected)
    )


def test_texts_mixed_with_pairs_and_other_heads_are_errors(model, tokenizer):
    with pytest.raises(ValueError, match="texts=None; give a string, or a list"):
        model.classify(None)
    with pytest.raises(ValueError, match=r"texts\[1\] is 'b'; give strings only, or"):
        model.classify([("a", "b"), "b"])
    with pytest.raises(ValueError, match=r"texts\[0\] is \('a', 'b', 'c'\); give"):
        model.classify([("a", "b", "c")])
    with pytest.raises(ValueError, match=r"texts\[0\] is 3, not a string"):
        model.classify([3])
    tags = made(TokenClassifier(Bert(TINY), num_labels=2), tokenizer)
    with pytest.raises(ValueError, match="cannot classify: its head is for labels"):
        tags.classify("a")
