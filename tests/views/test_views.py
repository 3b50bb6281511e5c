"""Laws of measures and pages: their numbers, and the content of a page."""

import base64
import configparser
import json
import re
import zlib
from pathlib import Path

import numpy as np
import pytest
from tiny import LETTERS, TINY, made, wordpiece

from bert_jax import tokenizers, views
from bert_jax.inference.attention import Attention
from bert_jax.models import Bert, BertConfig, Features
from bert_jax.views import attention_page, page

ROOT = Path(__file__).parents[2]
HOSTILE = ["</script><script>hacked=1</script>", "<img src=x onerror=hacked=1>", "]]>"]


def drawn(layers=3, heads=2, length=7, size=5, tokens=None, seed=0):
    """Attention of an untrained model, with a pair that begins at token 4."""
    draw = np.random.default_rng(seed)
    shape = (layers, heads, length, size)
    queries, keys = draw.normal(size=(2, *shape)).astype(np.float32) * 2
    weights = softmax(queries, keys)
    tokens = tokens or [f"word{i}" for i in range(length)]
    segments = (np.arange(length) >= 4).astype(np.int32)
    return Attention(tokens, weights, segments, queries, keys)


def crossed(layers=3, heads=2, length=5, seen=8, size=6):
    """Attention of the tokens of one text to those of another."""
    draw = np.random.default_rng(0)
    queries = draw.normal(size=(layers, heads, length, size)).astype(np.float32) * 2
    keys = draw.normal(size=(layers, heads, seen, size)).astype(np.float32) * 2
    tokens, source = ([f"{side}{i}" for i in range(9)] for side in ("new", "old"))
    weights = softmax(queries, keys)
    return Attention(
        tokens[:length], weights, None, queries, keys, source=source[:seen]
    )


def softmax(queries, keys):
    scores = queries @ np.swapaxes(keys, 2, 3) / queries.shape[-1] ** 0.5
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    return shares / shares.sum(-1, keepdims=True)


def read(html):
    """The facts and the numbers of a page, as its script reads them."""
    parts = re.findall(r'data-part="\w+">(.*?)</script>', html, re.DOTALL)
    halves = np.frombuffer(zlib.decompress(base64.b64decode(parts[1])), np.uint8)
    upper, lower = halves.reshape(2, -1).astype(np.int64)
    return json.loads(parts[0]), upper * 256 + lower


def test_rollout_equals_a_loop_over_layers_and_tokens():
    weights = drawn().weights
    layers, _, length, _ = weights.shape
    before = np.eye(length)
    for n in range(layers):
        after = np.zeros((length, length))
        for i in range(length):
            row = [0.5 * weights[n, :, i, j].mean() + 0.5 * (i == j) for j in range(7)]
            for j, share in enumerate(row):
                after[i] += share / sum(row) * before[j]
        np.testing.assert_allclose(views.rollout(weights)[n], after, atol=1e-6)
        before = after


def test_distance_and_entropy_of_known_heads():
    length = 5
    alike = np.full((length, length), 1 / length)
    previous = np.eye(length)[[0, 0, 1, 2, 3]]
    weights = np.stack([np.eye(length), alike, previous])[None]
    apart = np.mean([abs(i - j) for i in range(length) for j in range(length)])
    np.testing.assert_allclose(views.attention_distance(weights), [[0, apart, 0.8]])
    entropy = views.attention_entropy(weights)
    np.testing.assert_allclose(entropy, [[0, np.log(length), 0]], atol=1e-12)


def test_the_mean_cosine_is_a_mean_over_pairs():
    x = np.random.default_rng(0).normal(size=(6, 4)) + 1
    unit = [row / np.linalg.norm(row) for row in x]
    pairs = [unit[i] @ unit[j] for i in range(6) for j in range(i)]
    assert views.mean_cosine(x) == pytest.approx(np.mean(pairs))
    assert views.mean_cosine(np.outer([1, 2, 3], x[0])) == pytest.approx(1)


def test_principal_components_are_those_of_the_covariance():
    x = np.random.default_rng(0).normal(size=(9, 4)) * [5, 3, 0.1, 0.1] + 7
    points, shares = views.principal_components(x)
    variances, directions = np.linalg.eigh(np.cov(x.T))
    np.testing.assert_allclose(shares, variances[:1:-1] / variances.sum(), rtol=1e-5)
    for coordinates, direction in zip(points.T, directions.T[:1:-1], strict=True):
        along = (x - x.mean(0)) @ direction
        np.testing.assert_allclose(
            coordinates, along * np.sign(along @ coordinates), atol=1e-5
        )
        assert coordinates[np.abs(coordinates).argmax()] > 0
    same, none = views.principal_components(np.ones((3, 4)))
    assert not same.any() and not none.any()


def test_a_page_holds_the_numbers_within_the_stated_errors():
    attention = drawn()
    facts, numbers = read(attention_page.html(**vars(attention)))
    sizes = [
        attention.weights.size,
        3 * 7 * 7,
        attention.queries.size,
        attention.keys.size,
    ]
    weights, rolled, *vectors = np.split(numbers, np.cumsum(sizes)[:-1])
    most = 2 ** facts["bits"] - 1
    for rounded, exact in (
        (weights, attention.weights),
        (rolled, views.rollout(attention.weights)),
    ):
        assert np.abs(rounded / most - exact.ravel()).max() <= facts["error"] * 1.001
    rounding = facts["vectors"]
    back = []
    for x, steps, exact in zip(
        vectors, rounding["steps"], (attention.queries, attention.keys), strict=True
    ):
        step = np.array(steps)[:, :, None, None]
        back.append((x.reshape(exact.shape) - 2 ** (rounding["bits"] - 1)) * step)
        assert (np.abs(back[-1] - exact) <= step * 0.51).all()
    true, rounded = (
        q @ np.swapaxes(k, 2, 3) for q, k in ((attention.queries, attention.keys), back)
    )
    off = np.abs(true - rounded).max() / 5**0.5
    assert 0 < rounding["error"] < 1e-3 and off <= rounding["error"] * 1.01


def test_a_page_of_two_texts_has_no_rollout_and_no_distance():
    attention = crossed()
    facts, numbers = read(attention_page.html(**vars(attention)))
    assert facts["shape"] == [3, 2, 5, 8] and facts["distance"] is None
    assert (facts["tokens"], facts["source"]) == (attention.tokens, attention.source)
    np.testing.assert_allclose(
        facts["entropy"], views.attention_entropy(attention.weights), rtol=1e-5
    )
    sizes = [attention.weights.size, attention.queries.size, attention.keys.size]
    weights, *_, rest = np.split(numbers, np.cumsum(sizes))
    assert not rest.size
    rounded = weights.reshape(attention.weights.shape) / (2 ** facts["bits"] - 1)
    assert np.abs(rounded - attention.weights).max() <= facts["error"] * 1.001
    assert 0 < facts["vectors"]["error"] < 1e-3


def test_twelve_layers_of_twelve_heads_on_128_tokens_take_at_most_4_mb(tmp_path):
    attention = drawn(12, 12, 128, 64)
    attention.save_html(tmp_path / "view.html")
    assert (tmp_path / "view.html").stat().st_size <= 4_000_000
    facts, _ = read((tmp_path / "view.html").read_text("utf-8"))
    scores = attention.queries @ np.swapaxes(attention.keys, 2, 3) / 64**0.5
    assert facts["error"] <= 0.001
    assert facts["vectors"]["error"] < 0.03 * np.abs(scores).max()


def test_a_page_opens_at_the_strongest_weight_between_words_that_are_near():
    weights = np.full((2, 2, 30, 30), 0.01, np.float32)
    tokens = ["[CLS]", *(f"word{i}" for i in range(1, 28)), ".", "[SEP]"]
    specials = ("[CLS]", "[SEP]")

    def start(*strongest, names=tokens):
        with_peak = weights.copy()
        for n, place in enumerate(strongest):
            with_peak[place] = 0.9 - 0.1 * n
        facts, _ = read(attention_page.html(names, with_peak, specials=specials))
        return facts["start"]

    expected = {"layer": 1, "head": 0, "token": 9}
    # A special token, a mark, the token itself, a neighbour and one that is far away
    # tell less.
    passed_over = [
        (0, 1, 9, 0),
        (0, 1, 9, 28),
        (1, 1, 3, 3),
        (1, 1, 3, 4),
        (0, 0, 2, 25),
    ]
    assert start(*passed_over, (1, 0, 9, 5)) == expected
    assert start((0, 1, 4, 1), names=["."] * 30) == {"layer": 0, "head": 1, "token": 4}


def test_an_even_head_of_a_long_text_is_not_rounded_to_nothing():
    even = np.full((1, 1, 512, 512), 1 / 512, np.float32)
    facts, numbers = read(attention_page.html(["a"] * 512, even))
    shares = numbers[: even.size] / (2 ** facts["bits"] - 1)
    np.testing.assert_allclose(shares, 1 / 512, rtol=0.3)


def test_a_page_loads_no_address_and_evaluates_no_text():
    html = attention_page.html(**vars(drawn()))
    addresses = set(re.findall(r"\w+://[^\s\"'`]+", html))
    assert addresses == {"http://www.w3.org/2000/svg"}  # a name, which is not fetched
    assert "default-src 'none'" in html
    for word in ("eval(", "Function(", "innerHTML", " src=", " href=", "import("):
        assert word not in html


def test_no_token_is_ever_markup():
    hostile = attention_page.html(**vars(drawn(tokens=HOSTILE + ["a"] * 4)))
    plain = attention_page.html(**vars(drawn()))
    for end in ("</script", "<script", "<img", "<"):
        assert hostile.count(end) == plain.count(end)
    assert read(hostile)[0]["tokens"][:3] == HOSTILE
    frame = page.frame(hostile)
    assert frame.count("<") == 2 and frame.count('"') == 6


def test_a_notebook_shows_attention_in_a_frame_of_its_own():
    frame = drawn()._repr_html_()
    assert frame.startswith('<iframe sandbox="allow-scripts"')
    assert " id=" not in frame


@pytest.mark.parametrize(
    "changes, message",
    [
        (
            {"tokens": ["a"]},
            r"tokens have the shape \[1\]; weights of \[3, 2, 7, 7\] n",
        ),
        ({"segments": np.zeros(3)}, r"segments have the shape \[3\]"),
        ({"keys": None}, "queries come with keys"),
        ({"keys": np.zeros((3, 2, 7, 4))}, r"keys have the shape \[3, 2, 7, 4\]"),
        ({"weights": np.full((3, 2, 7, 7), np.nan)}, "weights are not all finite"),
        ({"weights": np.zeros((2, 7, 7))}, r"shape \[2, 7, 7\]; give \[layers, H"),
    ],
)
def test_arrays_of_different_shapes_are_errors(changes, message):
    with pytest.raises(ValueError, match=message):
        attention_page.html(**vars(drawn()) | changes)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"source": None}, r"shape \[3, 2, 5, 8\]; give \[layers, H, L, L\]"),
        (
            {"source": ["a"]},
            r"source have the shape \[1\]; weights of \[3, 2, 5, 8\] n",
        ),
        ({"keys": np.zeros((3, 2, 5, 6))}, r"need \[3, 2, 8, 6\]"),
        ({"segments": np.zeros(5, int)}, "segments are those of a text and its pair"),
        ({"weights": np.zeros((5, 8))}, r"shape \[5, 8\]; give \[layers, H, L, M\]"),
    ],
)
def test_arrays_of_two_texts_of_different_shapes_are_errors(changes, message):
    with pytest.raises(ValueError, match=message):
        attention_page.html(**vars(crossed()) | changes)


def test_a_wheel_has_every_file_of_the_pages():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    pattern = setup["options.package_data"]["bert_jax.views"]
    folder = ROOT / "bert_jax/views"
    files = {
        path for path in folder.rglob("*") if path.suffix in (".js", ".css", ".html")
    }
    assert files and files == set(folder.glob(pattern))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    tokenizer = wordpiece(tmp_path_factory.mktemp("vocabulary"), LETTERS)
    shared = {"num_hidden_layers": 3, "num_hidden_groups": 1, "embedding_size": 5}
    return made(Features(Bert(BertConfig(**vars(TINY) | shared))), tokenizer)


def test_weights_are_the_softmax_of_queries_and_keys(model):
    attention = model.attention("a b c", "d e f g h")
    assert (
        attention.queries.shape
        == attention.keys.shape
        == (3, 3, len(attention.tokens), 4)
    )
    expected = softmax(attention.queries, attention.keys)
    np.testing.assert_allclose(attention.weights, expected, atol=1e-6)
    assert np.abs(attention.weights[0] - attention.weights[2]).max() > 1e-4


def test_a_pair_begins_after_the_separator_that_no_text_has(model):
    attention = model.attention("a [SEP] b", "c")
    assert attention.segments.tolist() == [0, 0, 0, 0, 0, 1, 1]
    assert model.attention("a [SEP] b").segments is None
    assert attention.specials == ("[CLS]", "[SEP]")


def test_a_pair_is_detected_without_token_types():
    tokenizer = tokenizers.ByteLevelBPE.train(["a b c d"] * 3, 262)
    config = BertConfig(
        **vars(TINY) | {"vocab_size": tokenizer.vocab_size, "type_vocab_size": 1}
    )
    attention = made(Features(Bert(config)), tokenizer).attention("a b", "c")
    begins = attention.tokens.index("</s>") + 1
    assert attention.segments.tolist() == [
        int(i >= begins) for i in range(len(attention.tokens))
    ]
