"""Laws of the GPT example: its attention, cache, sampling, files and runs."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from examples.gpt.language_model import Characters, LanguageModel
from examples.gpt.model import GPTConfig, empty_cache
from examples.gpt.sampling import Sampling, generate, next_logits

TINY = GPTConfig(
    vocab_size=31,
    hidden_size=12,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=48,
    max_position_embeddings=16,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)
KINDS = {"GPT": False, "GPT-2": True}
each_kind = pytest.mark.parametrize("pre_norm", KINDS.values(), ids=KINDS)


def started(pre_norm, seed=1, **changes):
    """A module, and parameters far from their initial values."""
    model = dataclasses.replace(TINY, pre_norm=pre_norm, **changes).build()
    ids = jax.ShapeDtypeStruct((1, 2), jnp.int32)
    shapes = jax.eval_shape(model.init, jax.random.key(0), ids)["params"]
    draw = np.random.default_rng(seed)
    return model, jax.tree.map(
        lambda x: draw.normal(0, 0.4, x.shape).astype(np.float32), shapes
    )


def draw_ids(*shape, seed=0):
    return np.random.default_rng(seed).integers(0, TINY.vocab_size, shape)


def logits_of(model, params, ids):
    return jax.jit(lambda p, x: model.apply({"params": p}, x, method="logits"))(
        params, ids
    )


@each_kind
def test_no_score_depends_on_a_later_token(pre_norm):
    model, params = started(pre_norm)
    vectors = jax.random.normal(jax.random.key(0), (7, TINY.vocab_size))

    def scores(x):
        """Sums of the scores of seven tokens whose one-hot rows are replaced by `x`."""
        changed = {**params["embeddings"], "word": x @ params["embeddings"]["word"]}
        tree = {"params": {**params, "embeddings": changed}}
        return model.apply(tree, jnp.arange(7)[None])[0].sum(-1)

    model = dataclasses.replace(model.config, vocab_size=7).build()
    gradients = jnp.abs(jax.jit(jax.jacobian(scores))(vectors)).sum(-1)
    later = np.triu(np.ones((7, 7), bool), 1)
    assert (gradients[later] == 0).all()
    assert (gradients[~later] > 1e-4).all()


@each_kind
def test_a_cache_changes_no_score(pre_norm):
    model, params = started(pre_norm)
    ids, cache, scores = draw_ids(2, 13), empty_cache(model.config, 2), []
    for part in np.split(ids, [4, 5, 6, 9], axis=1):
        tree = {"params": params, "cache": cache}
        new, variables = model.apply(tree, part, mutable="cache", method="logits")
        cache = variables["cache"]
        scores.append(new)
    expected = logits_of(model, params, ids)
    np.testing.assert_allclose(np.concatenate(scores, 1), expected, atol=5e-6)


@each_kind
def test_greedy_continuations_are_those_without_a_cache(pre_norm):
    model, params = started(pre_norm)
    prompt = draw_ids(3, 5)
    tokens = generate(
        model, params, prompt, jax.random.key(0), count=11, sampling=Sampling(0)
    )
    ids = np.concatenate([prompt, tokens], axis=1)
    expected = logits_of(model, params, ids).argmax(-1)[:, 4:-1]
    np.testing.assert_array_equal(tokens, expected)


@each_kind
def test_packed_texts_do_not_see_each_other(pre_norm):
    model, params = started(pre_norm)
    ids = draw_ids(1, 9)
    mask = np.array([[1, 1, 1, 1, 2, 2, 2, 0, 0]])
    positions = np.array([[0, 1, 2, 3, 0, 1, 2, 0, 0]])
    packed = model.apply({"params": params}, ids, mask, None, positions)
    for part in (slice(0, 4), slice(4, 7)):
        alone = model.apply({"params": params}, ids[:, part])
        np.testing.assert_allclose(packed[:, part], alone, atol=1e-5)


def directly(logits, temperature, top_k, top_p):
    """The distribution by its definition, token by token."""
    p = np.exp(np.float64(logits) / temperature)
    order = np.argsort(-p)
    p[order[top_k or len(p) :]] = 0
    p /= p.sum()
    total = 0.0
    for token in order:
        if total >= top_p:
            p[token] = 0
        total += p[token]
    return p / p.sum()


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("top_k, top_p", [(0, 1.0), (3, 1.0), (0, 0.7), (4, 0.8)])
def test_sampling_is_from_the_distribution_by_definition(temperature, top_k, top_p):
    logits = np.random.default_rng(top_k).normal(0, 1.5, (5, 11)).astype(np.float32)
    sampling = Sampling(temperature, top_k, top_p)
    probabilities = jax.nn.softmax(next_logits(logits, sampling))
    expected = [directly(row, temperature, top_k, top_p) for row in logits]
    np.testing.assert_allclose(probabilities, expected, atol=1e-6)


def test_tokens_are_drawn_as_often_as_the_distribution_has_them():
    model, params = started(True)
    sampling, N = Sampling(1.3, top_k=5, top_p=0.9), 4000
    prompt = draw_ids(1, 5).repeat(N, 0)
    options = {"count": 1, "sampling": sampling}
    tokens = generate(model, params, prompt, jax.random.key(3), **options)
    counts = np.bincount(np.ravel(tokens), minlength=TINY.vocab_size)
    expected = directly(logits_of(model, params, prompt[:1])[0, -1], 1.3, 5, 0.9)
    assert 1 < (expected > 0).sum() <= 5
    deviation = np.sqrt(N * expected * (1 - expected))
    assert (abs(counts - N * expected) <= 5 * deviation).all()


def test_a_continuation_longer_than_the_context_goes_on_from_its_last_half():
    model, params = started(True, vocab_size=4)
    whole = LanguageModel(model, params, Characters("abcd"))
    text = whole.continue_text("abca", 30, temperature=0)
    assert len(text) == 30 and whole.continue_text("abca", 9, temperature=0) == text[:9]
    before = ("abca" + text)[:16][-8:]
    assert whole.continue_text(before, 8, temperature=0) == text[12:20]
    drawn = {whole.continue_text("ab", 12, seed=seed) for seed in (0, 1, 0)}
    assert len(drawn) == 2


@pytest.mark.parametrize(
    "options, message",
    [
        ({"top_p": 0.0}, r"top_p=0.0 is not in \(0, 1\]"),
        ({"top_p": 1.5}, r"top_p=1.5 is not in \(0, 1\]"),
        ({"top_k": -1}, "top_k=-1 is negative"),
        ({"temperature": -0.5}, "temperature=-0.5 is negative"),
        ({"prompt": ""}, "the prompt has 0 tokens, .* give a prompt of 1 to 15"),
        ({"prompt": "ab" * 8}, "the prompt has 16 tokens"),
        ({"prompt": "abx"}, "trained without the character 'x'"),
        ({"tokens": 0}, "ask for at least 1"),
    ],
)
def test_a_continuation_refuses_what_it_cannot_do(options, message):
    model, params = started(True, vocab_size=4)
    whole = LanguageModel(model, params, Characters("abcd"))
    with pytest.raises(ValueError, match=message):
        whole.continue_text(**{"prompt": "ab", **options})
    with pytest.raises(ValueError, match="5 tokens and 12 more do not fit .* 1 to 4"):
        key, prompt = jax.random.key(0), np.zeros((1, 5), int)
        generate(model, params, prompt, key, count=12, sampling=Sampling())


@each_kind
def test_a_saved_model_is_read_as_it_was(pre_norm, tmp_path):
    model, params = started(pre_norm)
    LanguageModel(model, params, Characters("abcd")).save(tmp_path)
    again = LanguageModel.load(tmp_path)
    assert again.model.config == model.config
    assert again.tokenizer.characters == "abcd"
    jax.tree.map(np.testing.assert_array_equal, again.params, params)


def test_a_model_that_is_not_a_gpt_is_refused(tmp_path):
    model, params = started(False)
    with pytest.raises(ValueError, match="is not a GPT with model.safetensors"):
        LanguageModel.load(tmp_path)
    LanguageModel(model, params).save(tmp_path)
    with pytest.raises(ValueError, match="the model has no tokenizer"):
        LanguageModel.load(tmp_path).continue_text("a")
    settings = json.loads((tmp_path / "config.json").read_text())
    for change, message in (
        ({"model_type": "bert"}, "model_type='bert' is unknown"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings=False is not supported"),
        ({"n_positions": 9}, "positions_embed.weight has the shape"),
    ):
        (tmp_path / "config.json").write_text(json.dumps(settings | change))
        with pytest.raises(ValueError, match=message):
            LanguageModel.load(tmp_path)
    narrow = started(False, intermediate_size=20)
    with pytest.raises(ValueError, match="intermediate_size=48, or pre_norm=True"):
        LanguageModel(*narrow).save(tmp_path)


def torch_logits(network, ids):
    torch = pytest.importorskip("torch")
    with torch.no_grad():
        return network.eval()(torch.tensor(ids)).logits.numpy()


SIZES = {"n_embd": 15, "n_layer": 3, "n_head": 5, "n_positions": 11, "vocab_size": 37}


@pytest.mark.parity
@pytest.mark.parametrize(
    "name, more",
    [
        ("OpenAIGPT", {}),
        ("GPT2", {}),
        ("GPT2", {"n_inner": 23, "activation_function": "relu"}),
    ],
)
def test_models_of_transformers_give_the_same_scores(name, more, tmp_path):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(
        **SIZES, **more, initializer_range=0.4
    )
    network = getattr(transformers, f"{name}LMHeadModel")(config)
    with torch.no_grad():
        for tensor in network.parameters():
            tensor.add_(0.1 * torch.randn_like(tensor))  # Biases and scales, too.
    network.save_pretrained(tmp_path / "theirs")
    loaded = LanguageModel.load(tmp_path / "theirs")
    ids = np.random.default_rng(0).integers(0, 37, (3, 11))
    expected = torch_logits(network, ids)
    scores = logits_of(loaded.model, loaded.params, ids)
    np.testing.assert_allclose(scores, expected, atol=1e-5 * abs(expected).max())
    loaded.save(tmp_path / "ours")
    kind = getattr(transformers, f"{name}LMHeadModel")
    again, report = kind.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    np.testing.assert_array_equal(torch_logits(again, ids), expected)
    greedy = again.generate(
        torch.tensor(ids[:1, :4]), do_sample=False, max_new_tokens=7, pad_token_id=0
    )
    tokens = generate(
        loaded.model,
        loaded.params,
        ids[:1, :4],
        jax.random.key(0),
        count=7,
        sampling=Sampling(0),
    )
    np.testing.assert_array_equal(greedy[0, 4:].numpy(), tokens[0])
