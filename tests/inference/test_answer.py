"""Laws of the verb `answer`."""

import dataclasses
import json

import jax
import numpy as np
import pytest
from tiny import LETTERS, made, wordpiece

import bert_jax
from bert_jax.data import qa_windows
from bert_jax.inference import span_decoding
from bert_jax.inference.span_decoding import Span
from bert_jax.models import Bert, BertConfig, SequenceClassifier, SpanClassifier

TINY = BertConfig(
    vocab_size=len(LETTERS),
    hidden_size=12,
    num_hidden_layers=1,
    num_attention_heads=3,
    intermediate_size=20,
    max_position_embeddings=20,
    initializer_range=0.5,
)
QUESTIONS = ["a b c", "d", "e f g h i j", "d"]
CONTEXTS = [
    "a B (c d) e",
    "k",
    " ".join("the quick brown fox jumps".replace(" ", "")) + " ",
    "x  y\nz w v u t s r q p o n m l k j i h g f e d c b a",
]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return wordpiece(tmp_path_factory.mktemp("vocabulary"), LETTERS)


@pytest.fixture(scope="module")
def model(tokenizer):
    return made(SpanClassifier(Bert(TINY)), tokenizer)


def alike(one, other):
    return one[:3] == other[:3] and one.score == pytest.approx(other.score, abs=1e-5)


def test_an_answer_is_a_slice_of_its_context_whatever_the_batch(model):
    together = model.answer(QUESTIONS, CONTEXTS, batch_size=3)
    for question, context, span in zip(QUESTIONS, CONTEXTS, together, strict=True):
        alone = model.answer(question, context)
        assert isinstance(alone, Span) and alike(alone, span)
        assert span.text and span.text == context[span.start : span.end]
    assert model.answer([], []) == []


def test_an_answer_is_the_best_span_of_the_logits_of_all_windows(model):
    question, context = QUESTIONS[3], CONTEXTS[3]
    config = qa_windows.WindowConfig(20)
    features = qa_windows.read(model.tokenizer, [question], [context], config)
    assert len(features.windows) > 1
    logits = [
        np.asarray(model(**{k: x[None] for k, x in inputs(window).items()}))[0]
        for window in features.windows
    ]
    (predictions,) = span_decoding.decode_all([context], features, logits, null=False)
    best = model.answer(question, context, k=5)
    assert len(best) == 5
    for one, other in zip(best, predictions.chosen(None), strict=False):
        assert alike(one, other)
    assert [x.score for x in best] == sorted((x.score for x in best), reverse=True)


def inputs(window):
    names = ("input_ids", "token_type_ids")
    return {name: getattr(window, name) for name in names}


def test_no_answer_is_an_empty_text_and_needs_a_threshold(model):
    plain = model.answer(QUESTIONS, CONTEXTS)
    never = model.answer(QUESTIONS, CONTEXTS, null_threshold=1e9)
    always = model.answer(QUESTIONS, CONTEXTS, null_threshold=-1e9)
    assert [x.text for x in never] == [x.text for x in plain]
    assert {x[:3] for x in always} == {("", 0, 0)}
    best = model.answer(QUESTIONS[0], CONTEXTS[0], k=3, null_threshold=-1e9)
    assert [bool(x.text) for x in best] == [False, True, True]
    assert model.answer("a", "  ").text == ""


def test_the_threshold_travels_with_the_model(model, tmp_path):
    silent = dataclasses.replace(model, extra={"null_threshold": -1e9})
    assert silent.answer("a", "b c").text == ""
    assert silent.answer("a", "b c", null_threshold=1e9).text
    silent.save(tmp_path)
    published = json.loads((tmp_path / "config.json").read_text())
    assert published["null_threshold"] == -1e9
    assert published["architectures"] == ["BertForQuestionAnswering"]
    again = bert_jax.load(tmp_path)
    assert again.extra["null_threshold"] == -1e9
    assert again.answer("a", "b c").text == ""
    again.extra = {"null_threshold": "high"}
    with pytest.raises(ValueError, match="null_threshold='high' in config.json is no"):
        again.answer("a", "b")


def test_a_question_that_is_too_long_is_cut_with_one_warning(model):
    long = "a b c d e f g h"
    with pytest.warns(UserWarning, match="cut 2 of 3 questions to 6 tokens"):
        spans = model.answer([long, "a", long], ["x y"] * 3)
    assert alike(spans[0], model.answer("a b c d e f", "x y"))
    strict = dataclasses.replace(model, strict=True)
    with pytest.raises(ValueError, match="longer than 6 tokens: 1 of 1 question;"):
        strict.answer(long, "x y")
    with pytest.raises(ValueError, match="text 1 has a lone surrogate at 2; replace"):
        strict.answer("a", "x \ud800")


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((["a"], "b"), "one of question and context is a string, the other is not"),
        ((["a", "b"], ["c"]), "2 questions came with 1 context; give one context"),
        (("a", 3), "context=3; give a string, or a list of them"),
        ((["a"], [None]), r"context\[0\] is None, not a string"),
        (("a", "b", 0), "k=0 is not between 1 and 20 answers"),
        (("a", "b", 21), "k=21 is not between 1 and 20 answers"),
        (("a", "b", 1, None, 0), "batch_size=0; it must be at least 1"),
    ],
)
def test_wrong_arguments_are_errors_before_anything_compiles(
    arguments, message, model, monkeypatch
):
    monkeypatch.setattr(jax, "jit", None)
    with pytest.raises(ValueError, match=message):
        model.answer(*arguments)


def test_other_heads_and_models_without_a_tokenizer_are_errors(model, tokenizer):
    other = made(SequenceClassifier(Bert(TINY), num_labels=2), tokenizer)
    message = 'head is for classes of texts; train one with .*finetune.model, "answer"'
    with pytest.raises(ValueError, match=message):
        other.answer("a", "b")
    bare = dataclasses.replace(model, tokenizer=None)
    with pytest.raises(ValueError, match="this model came without a tokenizer"):
        bare.answer("a", "b")
