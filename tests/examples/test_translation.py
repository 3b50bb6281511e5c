"""Laws of the translation example: its search, its language, its runs."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import soak
from test_views import read, softmax

import bert_jax
from bert_jax.models import TransformerConfig
from bert_jax.training import OptimizerConfig, TrainConfig
from examples.translation import toy_language
from examples.translation.beam_search import beam_search, length_penalty
from examples.translation.evaluation import Evaluation, bleu
from examples.translation.pair_files import frequent_words, read_pairs
from examples.translation.task import (
    PairRows,
    TranslationConfig,
    TranslationTask,
    word_tokenizer,
)
from examples.translation.translator import Translator

TINY = TransformerConfig(
    vocab_size=17,
    hidden_size=12,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=20,
    max_position_embeddings=16,
    hidden_dropout_prob=0.0,
)


def draw_ids(*shape, seed=0):
    return np.random.default_rng(seed).integers(5, TINY.vocab_size, shape)


def started(module, *inputs, seed=1):
    """Parameters far from their initial values, so that no term is a no-op."""
    shapes = jax.eval_shape(module.init, jax.random.key(0), *inputs)["params"]
    draw = np.random.default_rng(seed)
    return jax.tree.map(
        lambda x: draw.normal(x.ndim == 1, 0.3, x.shape).astype(np.float32), shapes
    )


START, END, PAD, V, LONGEST = 1, 2, 0, 5, 4


def table(seed):
    """Log probabilities of the next token after every beginning of tokens."""
    draw = np.random.default_rng(seed)
    return jnp.asarray(
        jax.nn.log_softmax(draw.normal(0, 2, (V,) * LONGEST + (LONGEST, V)))
    )


def scores_of(logs):
    """Reads the tokens from its state, which has to go with the beams."""

    def scores(tokens, t, state):
        token = jnp.where(t > 0, tokens[..., t], 0)
        state = jnp.where(jnp.arange(LONGEST) == t - 1, token[..., None], state)
        return logs[tuple(jnp.moveaxis(state, -1, 0))][..., t, :], state

    return scores


def exhaustive(logs, alpha):
    """The best text and its score, of all that there are."""
    logs, best = np.asarray(logs), (-np.inf, None)
    for text in itertools.product(range(1, V), repeat=LONGEST):
        size = text.index(END) + 1 if END in text else LONGEST
        total, before = 0.0, [0] * LONGEST
        for t, token in enumerate(text[:size]):
            total += logs[(*before, t, token)]
            before[t] = token
        score = total / ((5 + size) / 6) ** alpha
        if score > best[0]:
            best = score, [*text[:size], *[PAD] * (LONGEST - size)]
    return best


def searched(logs, beams, alpha):
    return beam_search(
        scores_of(logs),
        jnp.zeros((2, beams, LONGEST), jnp.int32),
        2,
        beams=beams,
        max_length=LONGEST,
        start_id=START,
        end_id=END,
        pad_id=PAD,
        alpha=alpha,
    )


@pytest.mark.parametrize("alpha", [0.0, 0.6, 2.0])
def test_a_wide_beam_finds_what_exhaustive_search_finds(alpha):
    for seed in range(3):
        logs = table(seed)
        tokens, scores = searched(logs, V**LONGEST, alpha)
        score, text = exhaustive(logs, alpha)
        assert tokens[0, 0].tolist() == tokens[1, 0].tolist() == text
        assert scores[0, 0] == pytest.approx(score, rel=1e-5)
        assert (np.diff(scores[0][np.isfinite(scores[0])]) <= 0).all()


def test_one_beam_takes_the_likeliest_token_each_time():
    for seed in range(5):
        logs, before, text = table(seed), [0] * LONGEST, []
        while len(text) < LONGEST and (not text or text[-1] != END):
            here = np.asarray(logs[(*before, len(text))])[1:]
            before[len(text)] = int(here.argmax()) + 1
            text.append(before[len(text)])
        tokens, _ = searched(logs, 1, 0.6)
        assert tokens[0, 0].tolist() == text + [PAD] * (LONGEST - len(text))


def test_the_length_penalty_is_that_of_wu_and_others():
    assert length_penalty(jnp.float32(1), 0.6) == 1
    assert float(length_penalty(jnp.float32(7), 0.6)) == pytest.approx(2**0.6)


def test_the_toy_language_follows_its_grammar_and_its_seed():
    pairs = toy_language.sentences(300, 1)
    assert pairs == toy_language.sentences(300, 1)
    assert pairs != toy_language.sentences(300, 2)
    assert len({text for text, _ in pairs}) == 300
    for text, other in pairs:
        words, written = text.split(), other.split()
        assert len(words) == len(written)
        subject = next(word for word in words if word in toy_language.NOUNS)
        verb = next(word for word in words if word in toy_language.VERBS)
        end = toy_language.NOUNS[subject][-1]
        assert written[-1] == toy_language.VERBS[verb] + end
        adverbs = [toy_language.ADVERBS[w] for w in words if w in toy_language.ADVERBS]
        assert written[: len(adverbs)] == adverbs
    assert {w for pair in pairs for text in pair for w in text.split()} <= set(
        toy_language.words()
    )


def test_held_out_sentences_are_none_of_those_to_learn_from():
    train, dev = TranslationConfig(sentences=200, held_out=50).pairs(seed=3)
    assert (len(train), len(dev)) == (200, 50)
    assert not toy_language.overlap(dev, train)


@pytest.fixture(scope="module")
def translator(tmp_path_factory):
    tokenizer = word_tokenizer(toy_language.words(), tmp_path_factory.mktemp("words"))
    config = dataclasses.replace(TINY, vocab_size=tokenizer.vocab_size)
    model = config.build()
    return Translator(
        model, started(model, draw_ids(1, 3), draw_ids(1, 2)), tokenizer, 6
    )


@pytest.mark.slow
def test_a_translator_is_read_as_it_was_saved(translator, tmp_path):
    texts = ["the dog sees a cat", "a bear fears this small mouse again"]
    translator.save(tmp_path / "model")
    again = Translator.load(tmp_path / "model")
    assert again.translate(texts, beams=3) == translator.translate(texts, beams=3)
    assert translator.translate(texts[0], beams=3) == again.translate(texts, beams=3)[0]


def test_an_alignment_has_a_row_for_each_token_that_is_written(translator):
    alignment = translator.alignment("the dog sees a cat", "ilo kudo una zata veko")
    assert alignment.source == "[CLS] the dog sees a cat [SEP]".split()
    assert alignment.tokens == "ilo kudo una zata veko [SEP]".split()
    assert alignment.weights.shape == (2, 3, 6, 7)
    np.testing.assert_allclose(alignment.weights.sum(-1), 1, rtol=1e-5)
    expected = softmax(alignment.queries, alignment.keys)
    np.testing.assert_allclose(alignment.weights, expected, atol=1e-6)


def test_an_alignment_is_of_the_texts_that_it_names_and_shows_itself(
    translator, tmp_path
):
    text, written = "the dog sees a cat", "ilo kudo una zata veko"
    alignment = translator.alignment(text, written)
    # Row i is there before token i is: it knows nothing of what comes after.
    other = translator.alignment(text, "ilo kudo una giva veko")
    np.testing.assert_allclose(
        other.weights[:, :, :4], alignment.weights[:, :, :4], atol=1e-6
    )
    assert np.abs(other.weights[:, :, 4] - alignment.weights[:, :, 4]).max() > 1e-4
    own = translator.alignment(text)
    again = translator.alignment(text, translator.translate(text))
    np.testing.assert_array_equal(own.weights, again.weights)
    alignment.save_html(tmp_path / "alignment.html")
    facts, _ = read((tmp_path / "alignment.html").read_text("utf-8"))
    assert (facts["tokens"], facts["source"]) == (alignment.tokens, alignment.source)
    assert alignment._repr_html_().startswith("<iframe")
    with pytest.raises(ValueError, match=r"text=\['the dog'\]; give one string"):
        translator.alignment(["the dog"])


@pytest.mark.slow
def test_a_resumed_run_ends_like_an_uninterrupted_one(tmp_path):
    config = TrainConfig(
        encoder=dataclasses.replace(
            TINY, vocab_size=96, num_hidden_layers=1, hidden_dropout_prob=0.1
        ),
        task=TranslationConfig(sentences=60, held_out=20),
        optimizer=OptimizerConfig(learning_rate=1e-2, warmup_steps=2),
        batch_size=16,
        num_steps=6,
        log_every=2,
        eval_every=3,
        checkpoint_every=3,
    )
    trained = bert_jax.train(config, tmp_path / "whole")
    soak.killed(tmp_path / "whole", tmp_path / "stopped", 3)
    bert_jax.train(config, tmp_path / "stopped")
    soak.assert_same_run(config, tmp_path / "whole", tmp_path / "stopped")
    # Where a run was, its translator is.
    resumed = Translator.load(tmp_path / "stopped")
    pair = "the dog sees a cat", "ilo kudo una zata veko"
    np.testing.assert_array_equal(
        resumed.alignment(*pair).weights, trained.alignment(*pair).weights
    )
    assert resumed.max_length == trained.max_length == 15
    assert trained.history["step"] == 6


def test_rows_too_long_and_files_without_pairs_are_refused(tmp_path):
    task = TranslationConfig(max_length=5)
    task.tokenizer = str(tmp_path)
    word_tokenizer(toy_language.words(), tmp_path).save(tmp_path)
    with pytest.raises(ValueError, match="tokens, more than task.max_length=5"):
        task.prepare(tmp_path, dataclasses.replace(TINY, vocab_size=200), seed=0)
    (tmp_path / "x.tsv").write_text("one\ttwo\nthree\n")
    with pytest.raises(ValueError, match="x.tsv, line 2 has 1 columns"):
        read_pairs(tmp_path / "x.tsv")
    with pytest.raises(ValueError, match="set both files or none"):
        TranslationConfig(train="x.tsv").validate(TINY)
    (tmp_path / "x.tsv").write_text("")
    with pytest.raises(ValueError, match="holds no line"):
        read_pairs(tmp_path / "x.tsv")


def test_columns_of_a_file_are_found_by_their_names(tmp_path):
    file = tmp_path / "x.tsv"
    file.write_text('de\ten\nEin Hund.\tA dog.\n"Zwei \tHunde."\tTwo dogs.\n')
    assert read_pairs(file, "en", "de") == [
        ("A dog.", "Ein Hund."),
        ("Two dogs.", "Zwei \tHunde."),
    ]
    with pytest.raises(ValueError, match="x.tsv has no column 'fr'; it has de, en"):
        read_pairs(file, "de", "fr")
    file.write_text("de\ten\nEin Hund.\t\n")
    with pytest.raises(ValueError, match="line 2 has 2 columns, or an empty one"):
        read_pairs(file, "de", "en")
    with pytest.raises(ValueError, match=r"none.tsv cannot be read .* check the path"):
        read_pairs(tmp_path / "none.tsv")
    with pytest.raises(ValueError, match="name both columns or none"):
        TranslationConfig(text="de").validate(TINY)


def test_words_of_files_are_those_that_a_side_has_often_enough(tmp_path):
    pairs = [("Ein Hund bellt, laut.", "A dog barks."), ("ein Ball, rot", "a Ball")]
    assert frequent_words(pairs, 2) == [",", "a", "ein"]
    tokenizer = word_tokenizer(frequent_words(pairs, 1), tmp_path)
    assert tokenizer.tokenize("Ein DOG, bar") == ["ein", "dog", ",", "[UNK]"]


def test_a_batch_has_pairs_of_like_length(tmp_path):
    tokenizer = word_tokenizer(["a", "b"], tmp_path)
    rows = PairRows([("a b", "b"), ("a", "a b a b")], tokenizer, 8)
    assert rows.lengths.tolist() == [4, 6]
    batch = rows.gather(np.array([1, 0]), 7)
    a, b, start, end = 5, 6, tokenizer.cls_id, tokenizer.sep_id
    assert batch["input_ids"][1].tolist() == [start, a, b, end, 0, 0, 0]
    assert batch["decoder_input_ids"][0].tolist() == [start, a, b, a, b, end]
    assert batch["labels"][0].tolist() == [a, b, a, b, end, 0]
    assert batch["decoder_attention_mask"][1].tolist() == [1, 1, 0, 0, 0, 0]


def test_bleu_is_that_of_equal_and_of_other_texts():
    pytest.importorskip("sacrebleu")
    texts = ["a dog runs on the grass .", "two men sit"]
    assert bleu(texts, texts)[0] == pytest.approx(100)
    score, signature = bleu(["a dog runs on the beach .", "two men"], texts)
    assert 0 < score < 100 and "tok:none" in signature
    with pytest.raises(
        ValueError, match="model is missing; set it with --config.model"
    ):
        Evaluation(test="x.tsv").run("x")


def test_a_step_of_the_transformer_scores_what_the_whole_does(translator):
    model, params = translator.model, {"params": translator.params}
    ids, other = draw_ids(2, 5), draw_ids(2, 4, seed=1)
    memory = model.apply(params, ids, method="encode")
    logits = model.apply(params, ids, other)
    state = model.apply(params, memory, method="start")
    for t in range(4):
        step, state = model.apply(params, other, t, state, memory, method="step")
        np.testing.assert_allclose(step, logits[:, t], atol=1e-5)


def test_the_loss_is_the_cross_entropy_with_smooth_labels(translator):
    rows = PairRows(toy_language.sentences(3, 0), translator.tokenizer, 16)
    task = TranslationTask({}, translator.tokenizer, 0.1, 16)
    batch = rows.gather(np.arange(3))
    model = translator.model
    totals = task.totals(model, translator.params, batch, jax.random.key(0))
    inputs = batch["input_ids"], batch["decoder_input_ids"], batch["attention_mask"]
    logits = model.apply({"params": translator.params}, *inputs)
    labels = optax.smooth_labels(jax.nn.one_hot(batch["labels"], logits.shape[-1]), 0.1)
    losses = optax.softmax_cross_entropy(logits, labels)
    real = batch["decoder_attention_mask"]
    assert totals["loss"][0] == pytest.approx(float((losses * real).sum()), rel=1e-5)
    right = ((logits.argmax(-1) == batch["labels"]) * real).sum()
    assert totals["accuracy"] == (right, real.sum())
