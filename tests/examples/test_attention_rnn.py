"""Laws of the recurrent translator: its cells, its scores, padding, search, runs."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_views import read

import bert_jax
from bert_jax.models import attention_scores
from examples.attention_rnn.cells import CELLS, GRU, LSTM
from examples.attention_rnn.config import NAMES, get_config
from examples.attention_rnn.model import (
    PLACES,
    SCORES,
    AttentionRNNConfig,
    CrossAttention,
)
from examples.translation import toy_language
from examples.translation.evaluation import Evaluation
from examples.translation.task import TranslationConfig, word_tokenizer
from examples.translation.translator import SearchConfig, Translator, search

TINY = AttentionRNNConfig(
    vocab_size=17,
    embedding_size=6,
    hidden_size=8,
    max_position_embeddings=11,
    hidden_dropout_prob=0.0,
)
B, M, L, D = 2, 7, 5, TINY.hidden_size
DRAW = np.random.default_rng(0)
IDS = DRAW.integers(5, TINY.vocab_size, (B, M))
OTHER = DRAW.integers(5, TINY.vocab_size, (B, L))
MASK = np.array([[1] * M, [1, 1, 1, 1, 0, 0, 0]])
# One of each: every score, both cells, both places.
VARIANTS = [
    *((score, "gru", "before") for score in SCORES),
    *(
        ("general", "lstm", "after"),
        ("none", "gru", "before"),
        ("none", "lstm", "after"),
    ),
]


def model_and_params(score="additive", cell="gru", attend="before"):
    """A model, and parameters far from their initial values."""
    config = dataclasses.replace(TINY, score=score, cell=cell, attend=attend)
    model = config.build()
    shapes = jax.eval_shape(model.init, jax.random.key(0), IDS, OTHER)["params"]
    draw = np.random.default_rng(1)
    return model, jax.tree.map(
        lambda x: draw.normal(0, 0.5, x.shape).astype(np.float32), shapes
    )


def attended(model, params, mask=MASK, ids=IDS):
    _, variables = model.apply(
        {"params": params}, ids, OTHER, mask, mutable=["intermediates"]
    )
    return variables["intermediates"]["decoder"]["cross_attention"]["weights"][0][:, 0]


@pytest.mark.parity
@pytest.mark.parametrize("name", CELLS)
def test_a_step_of_a_cell_is_that_of_torch(name):
    import torch

    cell = CELLS[name](D)
    x = DRAW.normal(0, 1, (B, 3)).astype(np.float32)
    state = [DRAW.normal(0, 1, (B, D)).astype(np.float32) for _ in range(cell.arrays)]
    other = {"gru": torch.nn.GRU, "lstm": torch.nn.LSTM}[name](3, D)
    weights = {k: v.detach().numpy() for k, v in other.named_parameters()}
    inner, outer = weights["bias_hh_l0"], weights["bias_ih_l0"]
    params = {
        "input": {"kernel": weights["weight_ih_l0"].T, "bias": outer},
        "hidden": {"kernel": weights["weight_hh_l0"].T, "bias": inner},
    }
    if cell.arrays == 2:  # the LSTM adds its two biases
        params["input"]["bias"] = outer + inner
        del params["hidden"]["bias"]
    gates = cell.apply({"params": params}, x, method="gates")
    ours = cell.apply({"params": params}, tuple(state), gates)
    before = tuple(torch.tensor(part)[None] for part in state)
    with torch.no_grad():
        before = before if len(before) > 1 else before[0]
        _, theirs = other(torch.tensor(x)[None], before)
    theirs = theirs if cell.arrays > 1 else (theirs,)
    for one, another in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, another[0].numpy(), atol=1e-6)


def test_a_new_lstm_remembers():
    bias = LSTM(2).init(jax.random.key(0), jnp.zeros((1, 3)), method="gates")
    assert bias["params"]["input"]["bias"].tolist() == [0, 0, 1, 1, 0, 0, 0, 0]
    assert GRU(2).width == 6


def by_hand(score, p, q, k, place):
    """The score of one query and one key, from kernels."""
    if score == "additive":
        return (np.tanh(q @ p["query"] + k @ p["key"]) @ p["vector"]).item()
    if score == "concat":
        both = np.concatenate([p["query"], p["key"]])
        return (np.tanh(np.append(q, k) @ both) @ p["vector"]).item()
    if score == "location":
        return (q @ p["places"])[place]
    if score == "cosine":
        strength = (q @ p["strength"] + D**0.5).item()
        return strength * (q @ k) / (np.linalg.norm(q) * np.linalg.norm(k))
    q = q @ p["query"] if score == "general" else q
    return q @ k / (D**0.5 if score == "scaled_dot" else 1)


@pytest.mark.parametrize("score", SCORES)
def test_weights_are_the_softmax_of_the_score_that_the_paper_gives(score):
    config = dataclasses.replace(TINY, score=score)
    attention = CrossAttention(config)
    query, states = DRAW.normal(0, 1, (B, D)), DRAW.normal(0, 1, (B, M, D))

    def run(attention):
        return attention(query, attention.keys(states), MASK)

    tree = attention.init(jax.random.key(2), method=run).get("params", {})
    p = {name: np.asarray(x["kernel"], float) for name, x in tree.items()}
    scores = np.array(
        [
            [by_hand(score, p, query[b], states[b, m], m) for m in range(M)]
            for b in range(B)
        ]
    )
    expected = np.where(MASK, np.exp(scores - scores.max()), 0)
    weights = attention.apply({"params": tree}, method=run)
    np.testing.assert_allclose(
        weights, expected / expected.sum(1, keepdims=True), atol=1e-5
    )
    np.testing.assert_allclose(weights.sum(1), 1, rtol=1e-6)
    assert (weights[MASK == 0] == 0).all()


def test_the_additive_score_is_that_of_the_package():
    attention = CrossAttention(TINY)
    query, states = DRAW.normal(0, 1, (B, D)), DRAW.normal(0, 1, (B, M, D))

    def run(attention):
        return SCORES["additive"](attention, query, attention.keys(states))

    scores, tree = attention.init_with_output(jax.random.key(2), method=run)
    p = {name: x["kernel"] for name, x in tree["params"].items()}
    expected = attention_scores.additive(
        query, states, p["query"].T, p["key"].T, p["vector"][:, 0]
    )
    np.testing.assert_allclose(scores, expected, atol=1e-6)


@pytest.mark.parametrize("score, cell, attend", VARIANTS)
def test_padding_and_later_tokens_change_nothing(score, cell, attend):
    model, params = model_and_params(score, cell, attend)
    run = jax.jit(
        lambda ids, other, mask: model.apply({"params": params}, ids, other, mask)
    )
    logits = run(IDS, OTHER, MASK)
    filled = np.where(MASK, IDS, 3)
    np.testing.assert_array_equal(logits, run(filled, OTHER, MASK))
    short = run(IDS[1:, :4], OTHER[1:], MASK[1:, :4])
    np.testing.assert_allclose(logits[1:], short, atol=1e-5)
    later = OTHER.copy()
    later[:, 3:] = 5
    np.testing.assert_array_equal(logits[:, :3], run(IDS, later, MASK)[:, :3])
    assert np.isfinite(logits).all()


@pytest.mark.parametrize("score, cell, attend", VARIANTS[:1] + VARIANTS[-3:])
def test_a_step_scores_what_the_whole_translation_does(score, cell, attend):
    model, params = model_and_params(score, cell, attend)

    def apply(*inputs, method=None):
        return model.apply({"params": params}, *inputs, method=method)

    logits = apply(IDS, OTHER, MASK)
    memory = apply(IDS, MASK, method="encode")
    state = apply(memory, method="start")
    for t in range(L):
        step, state = apply(OTHER, t, state, memory, MASK, method="step")
        np.testing.assert_allclose(step, logits[:, t], atol=1e-5)


def test_weights_sum_to_one_and_are_zero_on_padding():
    weights = attended(*model_and_params())
    assert weights.shape == (B, L, M)
    np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-6)
    assert (weights[1, :, 4:] == 0).all()


@pytest.mark.parametrize("score, cell, attend", VARIANTS[-3:])
def test_one_beam_is_greedy_search(score, cell, attend):
    model, params = model_and_params(score, cell, attend)
    start, end, pad, length = 2, 3, 0, 6
    settings = SearchConfig(1, length, 0.6, start, end, pad, TINY.vocab_size)
    tokens, _ = search(model, settings, params, IDS, MASK)
    for row in range(B):
        written = [start]
        while len(written) <= length and written[-1] != end:
            logits = model.apply(
                {"params": params},
                IDS[row : row + 1],
                np.array([written]),
                MASK[row : row + 1],
            )
            # Padding is no token of a text.
            written.append(int(logits[0, -1, 1:].argmax()) + 1)
        padding = [pad] * (length + 1 - len(written))
        assert tokens[row, 0].tolist() == written[1:] + padding


def tiny_run(**fields):
    config = get_config("luong")
    return dataclasses.replace(
        config,
        encoder=dataclasses.replace(config.encoder, hidden_size=8, embedding_size=6),
        task=TranslationConfig(sentences=40, held_out=6),
        optimizer=dataclasses.replace(config.optimizer, warmup_steps=1),
        batch_size=16,
        num_steps=2,
        **fields,
    )


@pytest.mark.slow
def test_a_run_leaves_a_translator_that_is_scored_on_a_file(tmp_path):
    trained = bert_jax.train(tiny_run(), tmp_path / "run")
    translator = Translator.load(tmp_path / "run")
    text = "the dog sees a cat"
    assert translator.translate(text) == trained.translate(text)
    alignment = translator.alignment(text, "ilo kudo una zata veko")
    assert alignment.weights.shape == (1, 1, 6, 7)
    assert alignment.queries is None
    alignment.save_html(tmp_path / "alignment.html")
    facts, _ = read((tmp_path / "alignment.html").read_text("utf-8"))
    assert (facts["tokens"], facts["source"]) == (alignment.tokens, alignment.source)
    pairs = toy_language.sentences(5, 9)
    lines = ["english\ttoy", *("\t".join(pair) for pair in pairs)]
    (tmp_path / "test.tsv").write_text("\n".join(lines))
    evaluation = Evaluation(
        str(tmp_path / "run"), str(tmp_path / "test.tsv"), "english", "toy", beams=2
    )
    scores = evaluation.run(tmp_path / "scores")
    assert 0 <= scores["bleu_greedy"] <= 100 and scores["perplexity"] > 1
    assert len((tmp_path / "scores/beam.txt").read_text().splitlines()) == 5


@pytest.mark.slow
@pytest.mark.parametrize("style", ["bahdanau", "luong"])
def test_the_toy_language_is_learnt_with_its_alignment(style, tmp_path):
    config = get_config(style)
    translator = bert_jax.train(config, tmp_path)
    assert translator.history["scores"]["eval"]["exact_match"] > 0.99
    right, total = 0, 0
    for text, translation in config.task.pairs(config.seed)[1][:100]:
        weights = translator.alignment(text, translation).weights[0, 0]
        places = weights[:-1].argmax(1) - 1  # [CLS] comes first
        right += (places == toy_language.alignment(text)).sum()
        total += len(places)
    assert right / total >= 0.99


def test_a_model_without_attention_has_no_alignment(tmp_path):
    tokenizer = word_tokenizer(toy_language.words(), tmp_path)
    config = dataclasses.replace(TINY, vocab_size=tokenizer.vocab_size, score="none")
    model = config.build()
    params = model.init(jax.random.key(0), IDS, OTHER)["params"]
    with pytest.raises(ValueError, match="this model has no attention"):
        Translator(model, params, tokenizer, 6).alignment("the dog", "ilo kudo")


def test_the_sources_of_an_alignment_are_translated_by_its_words():
    for text, translation in toy_language.sentences(100, 4):
        english, places = text.split(), toy_language.alignment(text)
        assert sorted(places) == list(range(len(english)))
        stems = toy_language.NOUNS | toy_language.ADJECTIVES | toy_language.VERBS
        stems |= toy_language.ARTICLES | toy_language.ADVERBS
        for word, place in zip(translation.split(), places, strict=True):
            assert word.startswith(stems[english[place]])


@pytest.mark.parametrize(
    "field, value, message",
    [
        ("score", "bilinear", "score='bilinear' is unknown; choose one of additive, "),
        ("cell", "rnn", "cell='rnn' is unknown; choose one of gru, lstm"),
        ("attend", "within", f"choose one of {', '.join(PLACES)}"),
        ("hidden_size", 7, "hidden_size=7 is odd"),
        ("embedding_size", 0, "embedding_size=0; it must be at least 1"),
        ("hidden_dropout_prob", 1.0, "is not a probability below 1"),
        ("attention", "splash", "attention='splash' is unknown; choose one of auto"),
    ],
)
def test_a_field_that_cannot_be_right_is_named(field, value, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(TINY, **{field: value}).build()


def test_texts_beyond_the_limit_and_unknown_recipes_are_refused():
    model, params = model_and_params()
    ids = np.full((1, 12), 5)
    with pytest.raises(ValueError, match="12 exceeds max_position_embeddings=11"):
        model.apply({"params": params}, ids, ids)
    with pytest.raises(ValueError, match="'gnmt' is unknown; choose one of bahdanau"):
        get_config("gnmt")
    for name in NAMES:
        get_config(name).encoder.validate()
