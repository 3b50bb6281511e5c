"""Laws of the verb `choose`."""

import numpy as np
import pytest
from tiny import LETTERS, made, wordpiece

from bert_jax.models import Bert, BertConfig, MultipleChoice, SequenceClassifier

TINY = BertConfig(
    vocab_size=len(LETTERS),
    hidden_size=12,
    num_hidden_layers=1,
    num_attention_heads=3,
    intermediate_size=20,
    max_position_embeddings=20,
    initializer_range=0.5,
)
CONTEXTS = ["a b c d e f g", "a", "z y x"]
CHOICES = [["h i", "j", "k l m n o p"], ["b", "c"], ["q r s", "t"]]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return wordpiece(tmp_path_factory.mktemp("vocabulary"), LETTERS)


@pytest.fixture(scope="module")
def model(tokenizer):
    return made(MultipleChoice(Bert(TINY)), tokenizer)


def test_choices_have_the_softmax_of_their_logits_the_likeliest_first(model):
    context, choices = CONTEXTS[0], CHOICES[0]
    batch = model.tokenizer([context] * 3, choices)
    logits = np.asarray(model(**{name: x[None] for name, x in batch.items()}))[0]
    expected = np.exp(logits) / np.exp(logits).sum()
    ranked = model.choose(context, choices)
    assert [x.text for x in ranked] == [choices[i] for i in np.argsort(-logits)]
    np.testing.assert_allclose(
        [x.probability for x in ranked], -np.sort(-expected), 1e-5
    )


def test_the_choices_of_a_context_do_not_depend_on_its_batch(model):
    together = model.choose(CONTEXTS, CHOICES, batch_size=2)
    assert [len(ranked) for ranked in together] == [3, 2, 2]
    for context, choices, ranked in zip(CONTEXTS, CHOICES, together, strict=True):
        alone = dict(model.choose(context, choices))
        assert dict(ranked) == pytest.approx(alone, abs=1e-6)
    assert model.choose([], []) == []


def test_a_tuple_has_the_opening_of_every_choice(model):
    whole = model.choose("a b", ["c d", "c e f"])
    parts = model.choose(("a b", "c"), ["d", "e f"])
    assert [x.probability for x in parts] == [x.probability for x in whole]
    assert [f"c {x.text}" for x in parts] == [x.text for x in whole]
    assert dict(model.choose([("a b", "c")], [["d", "e f"]])[0]) == dict(parts)


def test_wrong_arguments_and_other_heads_are_errors(model, tokenizer):
    with pytest.raises(ValueError, match="2 contexts came with 1 list of choices"):
        model.choose(["a", "b"], [["c", "d"]])
    with pytest.raises(ValueError, match=r"choices\[0\] is 'c d'; give a list"):
        model.choose("a", "c d")
    with pytest.raises(ValueError, match=r"choices\[1\] is \[\]; give a list"):
        model.choose(["a", "b"], [["c"], []])
    with pytest.raises(ValueError, match=r"choices\[0\] is \['c', 3\]; give a list"):
        model.choose("a", ["c", 3])
    with pytest.raises(ValueError, match=r"contexts\[0\] is \('a', 'b', 'c'\)"):
        model.choose(("a", "b", "c"), ["d"])
    with pytest.raises(ValueError, match=r"contexts\[1\] is 7; give a string"):
        model.choose(["a", 7], [["c"], ["d"]])
    with pytest.raises(ValueError, match="contexts=7; give a string, or a list"):
        model.choose(7, 8)
    other = made(SequenceClassifier(Bert(TINY), num_labels=2), tokenizer)
    with pytest.raises(ValueError, match="cannot choose: its head is for classes"):
        other.choose("a", ["b", "c"])
