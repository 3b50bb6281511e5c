"""Laws of the verbs: order, batches, truncation, pooling, and what they refuse."""

import dataclasses
import subprocess
import sys
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bert_jax
from bert_jax import tokenizers
from bert_jax.inference import batching
from bert_jax.inference.model import Model
from bert_jax.models import (
    Bert,
    BertConfig,
    Features,
    MaskedLM,
    Pretraining,
    SequenceClassifier,
    TokenClassifier,
)
from bert_jax.pretrained import Pooling

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *map(chr, range(97, 123)), "##b"]
TINY = BertConfig(
    vocab_size=len(WORDS),
    hidden_size=12,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=20,
    max_position_embeddings=20,
)
SHARED = BertConfig(
    **vars(TINY) | {"num_hidden_layers": 3, "num_hidden_groups": 1, "embedding_size": 5}
)
TEXTS = ["a b c d e f g h i", "a", "", "z y x", "q r s t u v w x", "ab b"]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    path.write_text("\n".join(WORDS))
    return tokenizers.WordPiece.from_vocab(path)


def made(head, tokenizer=None):
    ids = jax.ShapeDtypeStruct((1, 2), np.int32)
    shapes = jax.eval_shape(head.init, jax.random.key(0), ids)["params"]
    draw = np.random.default_rng(1)
    params = jax.tree.map(
        lambda x: draw.normal(0.1, 0.3, x.shape).astype(np.float32), shapes
    )
    return Model.of(head, params, tokenizer)


@pytest.fixture(scope="module")
def model(tokenizer):
    return made(Pretraining(Bert(TINY)), tokenizer)


def hidden(model, text):
    return np.asarray(model.hidden_states(**model.tokenizer(text)))[:, 0]


def test_texts_are_embedded_in_order_whatever_the_batch(model):
    alone = np.concatenate([model.embed(text) for text in TEXTS])
    np.testing.assert_allclose(model.embed(TEXTS, batch_size=2), alone, atol=1e-5)
    assert alone.dtype == np.float32 and alone.shape == (len(TEXTS), 12)


def test_windows_of_batches_do_not_change_results(model, monkeypatch):
    expected = model.embed(TEXTS, batch_size=2)
    monkeypatch.setattr(batching, "WINDOW", 1)
    np.testing.assert_allclose(model.embed(TEXTS, batch_size=2), expected, atol=1e-5)


def test_no_texts_give_no_vectors(model):
    assert model.embed([]).shape == (0, 12)
    assert model.embed([], pooling="tokens") == [] and model.fill_mask([]) == []


def test_layers_are_counted_from_either_end_and_concatenated(model):
    first, *_, last = hidden(model, "a b").mean(1)
    vectors = model.embed("a b", layers=(0, -1, 2))
    np.testing.assert_allclose(vectors[0], [*first, *last, *last], atol=1e-5)
    with pytest.raises(ValueError, match=r"there is no layer 3; choose from 0 .* to 2"):
        model.embed("a", layers=(3,))


def test_the_pooling_of_a_checkpoint_is_the_default(model):
    pooled = Model(**vars(model) | {"pooling": Pooling(("cls", "max"), True, "z ")})
    x = hidden(model, "z a b")[-1]
    both = np.concatenate([x[0], x.max(0)])
    expected = both / np.linalg.norm(both)
    np.testing.assert_allclose(pooled.embed("a b")[0], expected, atol=1e-5)
    plain = pooled.embed("a b", pooling="mean", normalize=False)
    np.testing.assert_allclose(plain[0], x.mean(0), atol=1e-5)
    with pytest.raises(ValueError, match="pooling='men' is unknown; choose one of cls"):
        model.embed("a", pooling="men")


def test_a_word_is_the_mean_of_its_pieces(model):
    [words] = model.embed(["Ab , c"], pooling="tokens")
    x = hidden(model, "Ab , c")[-1]
    assert words.words == ["Ab", ",", "c"]
    np.testing.assert_array_equal(words.spans, [[0, 2], [3, 4], [5, 6]])
    np.testing.assert_allclose(words.vectors, [x[1:3].mean(0), x[3], x[4]], atol=1e-5)
    empty = model.embed("", pooling="tokens")[0]
    assert empty.words == [] and empty.vectors.shape == (0, 12)


def test_long_texts_are_cut_and_counted(tokenizer):
    short = BertConfig(**vars(TINY) | {"max_position_embeddings": 7})
    model = made(Features(Bert(short)), tokenizer)
    long = "a b c d e f g"
    with pytest.warns(UserWarning, match="cut 2 of 3 texts to 7 tokens") as seen:
        cut, _, longer = model.embed([long, "a", long + " z"], batch_size=1)
    assert len(seen) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fits = model.embed("a b c d e")[0]
    np.testing.assert_array_equal(cut, fits)
    np.testing.assert_array_equal(longer, fits)


def test_masks_are_filled_with_the_likeliest_tokens(model):
    text = "a [MASK] b [MASK]"
    batch = model.tokenizer(text)
    logits = np.asarray(model(**batch)[0][0])
    filled = model.fill_mask(text, k=3)
    places = np.flatnonzero(batch["input_ids"][0] == 4)
    for place, guesses in zip(places, filled, strict=True):
        share = np.exp(logits[place]) / np.exp(logits[place]).sum()
        best = np.argsort(-share)[:3]
        np.testing.assert_allclose([g.probability for g in guesses], share[best], 1e-4)
        assert [g.token for g in guesses] == [WORDS[i] for i in best]


def test_an_id_without_a_token_is_no_guess(model, tokenizer):
    larger = BertConfig(**vars(TINY) | {"vocab_size": 40})
    padded = made(Pretraining(Bert(larger)), tokenizer)
    padded.params["mlm"]["bias"] = np.where(np.arange(40) < len(WORDS), 0, 9.0)
    (guesses,) = padded.fill_mask("a [MASK] b", k=len(WORDS))
    assert len({g.token for g in guesses}) == len(WORDS)
    assert sum(g.probability for g in guesses) < 0.1


def test_many_texts_are_filled_in_order(model):
    texts = ["[MASK] a b c", "a [MASK] b [MASK]"]
    one, two = model.fill_mask(texts, k=3)
    assert (len(one), len(two)) == (1, 2)
    for guesses, alone in zip(two, model.fill_mask(texts[1], k=3), strict=True):
        assert [g.token for g in guesses] == [g.token for g in alone]


def test_a_head_for_masked_lm_alone_fills_masks_too(model, tokenizer):
    params = {name: model.params[name] for name in ("encoder", "mlm")}
    alone = Model(MaskedLM(model.encoder), params, tokenizer)
    text = "a [MASK] b [MASK]"
    best = model.fill_mask(text, k=3)[0][0]
    assert alone.fill_mask(text, k=3)[0][0].token == best.token


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda m: m.fill_mask("a b"), r"text 0 has no \[MASK\] in its first 20 tok"),
        (lambda m: m.fill_mask("[MASK]", k=99), "k=99 is not between 1 and the 32"),
        (lambda m: m.fill_mask("[MASK]", k="5"), "k='5'; it must be a whole number"),
        (
            lambda m: m.embed("a", batch_size="32"),
            "batch_size='32'; it must be a whole",
        ),
        (lambda m: m.embed({"text": "a"}), "texts={'text': 'a'}; give a string, or a"),
        (lambda m: m.embed({"a", "b"}), "texts={.*}; give a string, or a list of them"),
        (lambda m: m.embed(b"abc"), "texts=b'abc'; give a string, or a list of them"),
        (lambda m: m.embed(np.array("a")), r"texts=array\('a'.*; give a string"),
        (lambda m: m.embed(np.array([["a"]])), r"texts=array\(\[\['a'.*; give a str"),
        (lambda m: m.fill_mask({"[MASK]": 1}), "texts={'.MASK.': 1}; give a string"),
        (lambda m: m.word_map("a", {"a": 1}), "texts={'a': 1}; give a string, or a"),
        (lambda m: m.word_map("a", ["a"], {"a"}), "groups={'a'}; give a string, or a"),
        (lambda m: m.word_map(7, ["a"]), "word=7; give one string"),
        (lambda m: m("a text"), "called with arrays by name, not with 'a text'; use"),
        (
            lambda m: jax.jit(lambda batch: m(**batch))(m.tokenizer("a")),
            "which jax.jit and jax.vmap hide; use bert_jax.as_function",
        ),
        (
            lambda m: jax.vmap(lambda ids: m.head.apply({"params": m.params}, ids))(
                np.ones((2, 3), int)
            ),
            r"input_ids has the shape \[3\]; give \[B, L\], also inside of jax.vmap",
        ),
        (lambda m: bert_jax.describe("qs"), "describe takes a Model, not 'qs'; open"),
        (lambda m: bert_jax.export("qs", "x"), "export takes a Model, not 'qs'; open"),
        (lambda m: bert_jax.as_function("qs"), "as_function takes a Model, not 'qs'"),
        (lambda m: bert_jax.train({"a": 1}, "x"), "config is a dict; give a TrainConf"),
        (lambda m: bert_jax.load(None), "source=None; give a directory, or a name on"),
        (
            lambda m: bert_jax.load("x", dtype="float"),
            "dtype='float' is unknown; choos",
        ),
        (lambda m: bert_jax.load("x", dtype=None), "dtype=None is unknown; choose one"),
        (
            lambda m: bert_jax.load("x", dtype=[3]),
            r"dtype=\[3\] is unknown; choose one",
        ),
        (
            lambda m: bert_jax.export(m, "x.onnx"),
            "x.onnx would be a directory, but end",
        ),
        (lambda m: m.save("x.safetensors"), "x.safetensors would be a directory, but"),
        (lambda m: m.save_tf1("x.ckpt"), "name a directory, such as x$"),
        (lambda m: m.embed("a", batch_size=0), "batch_size=0; it must be at least 1"),
        (lambda m: m.embed(["a", None]), r"texts\[1\] is None, not a string"),
        (lambda m: m(input_ids=np.array([[99]])), "input_ids holds 99, but the model"),
        (lambda m: m(input_ids=np.array([[-1]])), "input_ids holds -1"),
        (
            lambda m: m(input_ids=np.array([[5]]), token_type_ids=np.array([[2]])),
            "token_type_ids holds 2, but the model has 2",
        ),
        (lambda m: m(input_ids=np.ones((1, 21), int)), "sequence length 21 exceeds"),
        (
            lambda m: m(input_ids=np.array([[5]]), position_ids=np.array([[20]])),
            "position_ids holds 20, but the model has 20",
        ),
        (lambda m: m(input_ids=np.array([5, 6])), r"int64\[2\]; give integers"),
        (lambda m: m(input_ids=np.array([[0.5]])), r"input_ids is float64\[1, 1\]"),
        (lambda m: m(input_ids=[[5, 6]]), "input_ids is a list; give an array"),
        (
            lambda m: m(input_ids=np.ones((1, 3), int), attention_mask=np.eye(4) > 0),
            r"attention_mask is bool\[4, 4\]; give integers",
        ),
        *(
            (
                lambda m, shape=shape: m(
                    input_ids=np.ones((2, 3), int), attention_mask=np.ones(shape, int)
                ),
                f"attention_mask has the shape .{shape[0]}, {shape[1]}., but input_ids",
            )
            for shape in ((2, 4), (3, 3))
        ),
        (lambda m: m.embed(None), "texts=None; give a string, or a list of them"),
        (lambda m: m.embed("a", layers=-1), "layers=-1; give a tuple of numbers"),
        (lambda m: m.embed("a", layers=()), r"layers=\(\); give a tuple of numbers"),
        (lambda m: m.attention(["a"]), r"text=\['a'\]; give one string"),
        (lambda m: m.attention("a", 3), "pair=3; give one string"),
    ],
)
def test_the_error_of_a_wrong_call_has_a_remedy(model, call, message):
    with pytest.raises(ValueError, match=message) as error:
        call(model)
    assert str(error.value).count("\n") <= 2


def test_a_model_is_shown_in_three_lines(model, tokenizer):
    assert repr(model).splitlines() == [
        f"bert: 2 layers, hidden size 12, 3 heads, MLP 20 with gelu; "
        f"{sum(x.size for x in jax.tree.leaves(model.params)):,} parameters",
        "head: masked words and sentence pairs",
        f"WordPiece of {tokenizer.vocab_size} pieces, rows of up to 20 tokens, no "
        "pooling",
    ]
    labels = tuple(map(str, range(12)))
    pooling = Pooling(("cls", "max"), normalize=True)
    head = SequenceClassifier(Bert(TINY), num_labels=12)
    classifier = Model(head, model.params, labels=labels, pooling=pooling, max_length=9)
    assert repr(classifier).splitlines()[1:] == [
        "head: classes of texts; 12 labels: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, …",
        "no tokenizer for the 32 pieces, rows of up to 9 tokens, cls and max pooling, "
        "scaled to length 1",
    ]


@pytest.mark.parametrize("save", ["save", "save_tf1"])
def test_a_model_is_not_saved_among_other_files(model, save, tmp_path):
    (tmp_path / "thesis.txt").write_text("years")
    with pytest.raises(ValueError, match="exists already; delete it or choose another"):
        getattr(model, save)(tmp_path)
    assert [x.name for x in tmp_path.iterdir()] == ["thesis.txt"]
    model.save(tmp_path / "own")
    model.save(tmp_path / "own")  # replaces the first


def test_names_of_other_libraries_are_answered_with_ours(model):
    with pytest.raises(AttributeError, match=r"no 'encode'; use model\.embed"):
        model.encode(["a"])
    with pytest.raises(AttributeError, match="a Model has no 'bogus'$"):
        _ = model.bogus
    assert not hasattr(model, "keys")


@pytest.mark.parametrize("dtype", ["bfloat16", jnp.bfloat16, jnp.dtype("bfloat16")])
def test_a_type_is_given_by_name_or_as_jax_has_it(model, dtype, tmp_path):
    model.save(tmp_path)
    assert bert_jax.load(tmp_path, dtype=dtype).config.dtype == "bfloat16"
    assert bert_jax.load(tmp_path, dtype=np.float32).config.dtype == "float32"


def test_the_warning_of_a_cut_text_says_how_to_read_all_of_it(model):
    short = dataclasses.replace(model, max_length=9)
    remedy = "9 tokens; for up to 20, set model.max_length = 20"
    with pytest.warns(UserWarning, match=remedy):
        short.embed("a " * 15)
    short.max_length = 20
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        short.embed("a " * 15)
    with pytest.warns(UserWarning, match="to 20 tokens; split them, for the model has"):
        short.embed("a " * 30)


def test_a_verb_without_its_head_is_an_error(tokenizer):
    tagger = made(TokenClassifier(Bert(TINY), 3), tokenizer)
    with pytest.raises(ValueError, match="cannot fill masks: its head is for labels"):
        tagger.fill_mask("[MASK]")
    with pytest.raises(ValueError, match="came without a tokenizer"):
        made(Features(Bert(TINY))).embed("a")


def test_a_strict_model_makes_errors_of_warnings(model, tokenizer, tmp_path):
    model.save(tmp_path)
    strict = bert_jax.load(tmp_path, strict=True)
    np.testing.assert_array_equal(strict.embed(["a", "b a"]), model.embed(["a", "b a"]))
    with pytest.raises(ValueError, match="longer than 20 tokens: 1 of 2 texts;"):
        strict.embed(["a", "b " * 19])
    with pytest.raises(ValueError, match="text 1 has a lone surrogate at 7; replace"):
        strict.fill_mask(["[MASK]", "[MASK] \ud800"])


def test_a_long_text_is_cut_for_attention_with_a_warning(model):
    with pytest.warns(UserWarning, match="cut 1 of 1 text to 20 tokens"):
        assert len(model.attention("a " * 30).tokens) == 20


def test_lone_surrogates_and_odd_strings_are_embedded(model):
    with pytest.warns(UserWarning, match="lone surrogates"):
        vectors = model.embed(["\ud800 a", "\x00", "漢字", "a\u202eb", "🙂" * 3])
    assert np.isfinite(vectors).all()


@pytest.mark.parametrize("config", [TINY, SHARED])
def test_attention_is_that_of_every_layer_in_order(config, tokenizer):
    model = made(Features(Bert(config)), tokenizer)
    attention = model.attention("a b", "c")
    assert attention.tokens == ["[CLS]", "a", "b", "[SEP]", "c", "[SEP]"]
    assert attention.weights.shape == (config.num_hidden_layers, 3, 6, 6)
    np.testing.assert_allclose(attention.weights.sum(-1), 1, rtol=1e-5)
    states = model.hidden_states(**tokenizer("a b", "c"))
    assert states.shape == (config.num_hidden_layers + 1, 1, 6, 12)
    assert not np.allclose(attention.weights[0], attention.weights[1])


def test_compiled_programs_are_kept_on_disk(tmp_path):
    use = (
        "import jax; from bert_jax.inference import jitted; "
        f"jitted.use_compilation_cache({str(tmp_path)!r}); "
        "print(jax.jit(lambda x: x + 1)(1))"
    )
    run = [sys.executable, "-c", use]
    assert subprocess.run(run, capture_output=True, text=True).stdout == "2\n"
    assert list(tmp_path.iterdir())


def test_embedding_loads_neither_tensorflow_nor_torch():
    check = (
        "import sys, bert_jax.inference.model; print([m for m in sys.modules if m in "
    )
    check += "('tensorflow', 'torch', 'orbax.checkpoint', 'transformers')])"
    run = [sys.executable, "-c", check]
    assert subprocess.run(run, capture_output=True, text=True).stdout.strip() == "[]"
