"""Laws of the pages in a browser, with its mouse and its keys."""

import re

import browser
import matplotlib.image
import numpy as np
import pytest
from test_views import HOSTILE, crossed, drawn

from bert_jax import views
from bert_jax.inference import WordMap
from bert_jax.views import attention_page, page

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not browser.NAME, reason="chromium is not installed"),
]
ATTENTION = drawn()
CROSSED = crossed()


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    with browser.opened(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture
def view(chromium, tmp_path):
    """The page of `ATTENTION`, opened."""
    ATTENTION.save_html(tmp_path / "view.html")
    chromium.resize()
    chromium.open(tmp_path / "view.html")
    return chromium


@pytest.fixture
def alignment(chromium, tmp_path):
    """The page of `CROSSED`, opened."""
    CROSSED.save_html(tmp_path / "alignment.html")
    chromium.resize()
    chromium.open(tmp_path / "alignment.html")
    return chromium


def tab(chromium, number):
    chromium.click(f"document.querySelectorAll('nav button')[{number}]")


def pick(chromium, label, text):
    """Selects an entry in the list of a label."""
    chromium.value(
        f"""(() => {{
        const label = [...document.querySelectorAll("label")]
          .find((x) => x.textContent.startsWith("{label}"));
        const list = label.querySelector("select");
        list.selectedIndex = [...list.options].findIndex((x) => x.text === "{text}");
        list.dispatchEvent(new Event("change"));
        }})()"""
    )


def texts_of(chromium, query):
    """The texts of all elements of a query."""
    return chromium.value(
        f"[...document.querySelectorAll('{query}')].map(e => e.textContent)"
    )


def pixels(chromium, path):
    chromium.picture(path)
    return matplotlib.image.imread(path)[..., :3]


def test_every_head_of_every_layer_is_drawn_without_loading_anything(view):
    view.picture()
    ink = view.value(
        """[...document.querySelectorAll(".grid canvas")].map((canvas) => {
        const { width, height } = canvas;
        const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
        return data.reduce((sum, x) => sum + x, 0);
        })"""
    )
    layers, heads = ATTENTION.weights.shape[:2]
    assert len(ink) == layers * (heads + 2) and min(ink) > 0
    assert len(set(ink)) > len(ink) / 2
    assert [url.split("/")[-1] for url in view.requests] == ["view.html"]


def test_a_click_opens_a_head_and_another_shows_a_row_and_a_column(view):
    view.click("document.querySelector('[aria-label=\"layer 1, head 1\"]')")
    assert view.value("document.querySelectorAll('select')[0].value") == "1"
    view.click("document.querySelectorAll('.from .token')[2]")
    row = [float(x) for x in texts_of(view, ".to small")]
    np.testing.assert_allclose(row, ATTENTION.weights[1, 1, 2], atol=0.0006)
    view.click("document.querySelectorAll('.to .token')[3]")
    column = [float(x) for x in texts_of(view, ".from small")]
    np.testing.assert_allclose(column, ATTENTION.weights[1, 1, :, 3], atol=0.0006)
    assert texts_of(view, "output")[0].startswith("word3 (3) is looked at by word")


@pytest.mark.parametrize(
    "layer, head, expected",
    [
        ("2", "mean of all", ATTENTION.weights[2].mean(0)),
        ("mean of all", "1", ATTENTION.weights[:, 1].mean(0)),
        ("mean of all", "mean of all", ATTENTION.weights.mean((0, 1))),
        ("1", "rollout to this layer", views.rollout(ATTENTION.weights)[1]),
        ("mean of all", "rollout to this layer", views.rollout(ATTENTION.weights)[2]),
    ],
)
def test_means_and_rollout_are_those_of_python(view, layer, head, expected):
    tab(view, 1)
    pick(view, "Layer", layer)
    pick(view, "Head", head)
    view.click("document.querySelectorAll('.from .token')[5]")
    row = [float(x) for x in texts_of(view, ".to small")]
    np.testing.assert_allclose(row, expected[5], atol=0.0006)


@pytest.mark.parametrize(
    "filtered, rows, columns",
    [
        ("all", range(7), range(7)),
        ("A → B", range(4), range(4, 7)),
        ("B → A", range(4, 7), range(4)),
        ("B → B", range(4, 7), range(4, 7)),
    ],
)
def test_a_filter_shows_the_tokens_of_its_sides(view, filtered, rows, columns):
    tab(view, 1)
    pick(view, "Show", filtered)
    assert texts_of(view, ".from bdi") == [f"word{i}" for i in rows]
    assert texts_of(view, ".to bdi") == [f"word{i}" for i in columns]
    view.click("document.querySelector('.from .token')")
    row = [float(x) for x in texts_of(view, ".to small")]
    np.testing.assert_allclose(
        row, ATTENTION.weights[0, 0, rows[0], columns], atol=0.0006
    )


def assert_scores_and_weights(view, attention, layer, head, token):
    """The third view shows the scores and weights of a token with all others."""
    numbers = np.array(texts_of(view, ".vectors .number"), float).reshape(-1, 2)
    query, keys = attention.queries[layer, head, token], attention.keys[layer, head]
    scores = query @ keys.T / len(query) ** 0.5
    np.testing.assert_allclose(numbers[:, 0], scores, atol=0.006)
    weights = attention.weights[layer, head, token]
    np.testing.assert_allclose(numbers[:, 1], weights, atol=0.0006)


def test_query_and_key_give_the_scores_and_the_weights_of_a_token(view):
    tab(view, 2)
    pick(view, "Head", "1")
    pick(view, "Token", "word6 (6)")
    assert_scores_and_weights(view, ATTENTION, 0, 1, 6)


def test_a_dot_of_the_layers_opens_its_head(view):
    tab(view, 3)
    view.until("document.querySelectorAll('circle').length == 12")
    view.click("document.querySelectorAll('circle')[5]")
    assert view.value("[...document.querySelectorAll('select')].map(e => e.value)") == [
        *("2", "1", "all")
    ]


def test_a_token_is_reached_with_the_keyboard_alone(view):
    # To the second view and into it; past two views, three lists; down the tokens.
    for key in ("Tab", "Tab", "Enter", *["Tab"] * 6, "ArrowDown"):
        view.press(key)
    assert view.value("document.activeElement.title") == "word1 (1)"
    row = [float(x) for x in texts_of(view, ".to small")]
    np.testing.assert_allclose(row, ATTENTION.weights[0, 0, 1], atol=0.0006)


def test_no_token_is_ever_markup(chromium, tmp_path):
    drawn(tokens=HOSTILE + ["a"] * 4).save_html(tmp_path / "view.html")
    chromium.resize()
    chromium.open(tmp_path / "view.html")
    tab(chromium, 1)
    assert texts_of(chromium, ".from bdi")[:3] == HOSTILE
    tab(chromium, 2)
    assert texts_of(chromium, ".vectors bdi")[1:4] == HOSTILE
    assert chromium.value("typeof hacked + document.images.length") == "undefined0"


def test_a_translation_is_beside_its_text(alignment):
    alignment.click("document.querySelector('[aria-label=\"layer 2, head 1\"]')")
    assert texts_of(alignment, ".from bdi") == CROSSED.tokens
    assert texts_of(alignment, ".to bdi") == CROSSED.source
    alignment.click("document.querySelectorAll('.from .token')[4]")
    row = [float(x) for x in texts_of(alignment, ".to small")]
    np.testing.assert_allclose(row, CROSSED.weights[2, 1, 4], atol=0.0006)
    assert sum(row) == pytest.approx(1, abs=8 * 0.0006)
    best = CROSSED.source[CROSSED.weights[2, 1, 4].argmax()]
    assert texts_of(alignment, "output")[0].startswith(f"new4 (4) looks at {best} (")
    alignment.click("document.querySelectorAll('.to .token')[7]")
    column = [float(x) for x in texts_of(alignment, ".from small")]
    np.testing.assert_allclose(column, CROSSED.weights[2, 1, :, 7], atol=0.0006)
    pick(alignment, "Layer", "mean of all")
    pick(alignment, "Head", "mean of all")
    alignment.click("document.querySelectorAll('.from .token')[3]")
    row = [float(x) for x in texts_of(alignment, ".to small")]
    np.testing.assert_allclose(row, CROSSED.weights.mean((0, 1))[3], atol=0.0006)


def test_the_line_of_a_translated_token_ends_at_the_token_it_looks_at(alignment):
    alignment.click("document.querySelector('[aria-label=\"layer 0, head 0\"]')")
    alignment.click("document.querySelectorAll('.from .token')[2]")
    # One line alone is drawn strongest: where the right edge has most ink.
    ink = alignment.value(
        """(() => {
        const canvas = document.querySelector(".head canvas");
        const { width, height } = canvas;
        const { data } = canvas.getContext("2d").getImageData(width - 3, 0, 1, height);
        return Array.from({ length: height }, (_, y) => data[4 * y + 3]);
        })()"""
    )
    at = np.argmax(ink) / len(ink) * len(CROSSED.source)
    assert int(at) == CROSSED.weights[0, 0, 2].argmax()


def test_a_translation_has_no_rollout_no_filter_and_no_distance(alignment):
    layers, heads = CROSSED.weights.shape[:2]
    assert len(texts_of(alignment, ".grid canvas")) == layers * (heads + 1)
    tab(alignment, 1)
    assert texts_of(alignment, "label:last-of-type option") == ["0", "1", "mean of all"]
    assert len(texts_of(alignment, "select")) == 2
    tab(alignment, 3)
    alignment.until("document.querySelectorAll('circle').length == 6")
    assert texts_of(alignment, "figcaption") == [
        "How broadly: entropy, at most ln 8 = 2.08"
    ]


def test_the_query_of_a_translated_token_has_scores_with_the_keys_of_the_text(
    alignment,
):
    tab(alignment, 2)
    pick(alignment, "Layer", "1")
    pick(alignment, "Token", "new4 (4)")
    assert_scores_and_weights(alignment, CROSSED, 1, 0, 4)


@pytest.mark.parametrize("dark", [False, True])
def test_colours_follow_the_light_or_dark_scheme(view, dark, tmp_path):
    view.resize(dark=dark)
    tab(view, 1)
    image = pixels(view, tmp_path / "view.png")
    paper = image[-1, 0]
    assert (paper < 0.2).all() if dark else (paper == 1).all()
    assert np.abs(image - paper).max() > 0.7


@pytest.mark.parametrize("number", range(4))
def test_every_view_fits_into_the_width_of_a_phone(view, number):
    view.resize(360, 640, touch=True)
    tab(view, number)
    view.picture()
    assert view.value("document.documentElement.scrollWidth") <= 360


def test_two_views_in_one_page_are_independent(chromium, tmp_path):
    frames = ATTENTION._repr_html_() + drawn(seed=1)._repr_html_()
    (tmp_path / "notebook.html").write_text(f"<body style='margin:0'>{frames}</body>")
    chromium.resize(800, 2 * page.HEIGHT)
    chromium.open(tmp_path / "notebook.html", wait="document.querySelector('iframe')")

    def halves():
        image = pixels(chromium, tmp_path / "notebook.png")
        return image[: page.HEIGHT], image[page.HEIGHT :]

    def settled(others):
        """Both halves, once they are drawn and stable, and the first differs."""
        seen = [halves()]
        for _ in range(100):
            seen = [*seen, halves()][-5:]
            rests = len(seen) == 5 and np.ptp(np.array(seen), axis=0).max() == 0
            has_ink = all(half.std() > 0.05 for half in seen[-1])
            if rests and has_ink and not np.array_equal(seen[-1][0], others[0]):
                return seen[-1]
        raise AssertionError("a frame stays empty, does not change, or is never stable")

    first = settled((np.zeros(1), np.zeros(1)))
    box = {"x": 150, "y": 25, "button": "left", "clickCount": 1}
    for kind in ("mousePressed", "mouseReleased"):
        chromium.send("Input.dispatchMouseEvent", type=kind, **box)
    second = settled(first)
    np.testing.assert_array_equal(second[1], first[1])


def test_a_word_map_shows_its_contexts(chromium, tmp_path):
    draw = np.random.default_rng(0)
    texts = ["the <b>bank</b> of a river", "a bank lends", "at the bank"]
    word_map = WordMap(
        "bank",
        texts,
        np.array([[text.index("bank"), text.index("bank") + 4] for text in texts]),
        ["river", "money", "money"],
        draw.normal(size=(3, 3, 5)).astype(np.float32),
        np.array([0.1, 0.2, 0.3]),
    )
    word_map.save_html(tmp_path / "word.html")
    chromium.resize()
    chromium.open(tmp_path / "word.html")
    chromium.click("document.querySelector('path[data-context=\"0\"]')")
    assert texts_of(chromium, "output") == [texts[0]] and texts_of(
        chromium, "output mark"
    ) == ["bank"]
    before = chromium.value("document.querySelector('path[data-context]').outerHTML")
    chromium.value(
        "(() => { const e = document.querySelector('input'); e.value = 0;"
        " e.dispatchEvent(new Event('input')); })()"
    )
    after = chromium.value("document.querySelector('path[data-context]').outerHTML")
    assert before != after and texts_of(chromium, ".legend") == ["river", "money"]


@pytest.mark.parametrize("count", [2, 8, 20])
def test_the_frame_of_a_word_map_has_room_for_its_contexts(chromium, tmp_path, count):
    draw = np.random.default_rng(0)
    vectors = draw.normal(size=(3, count, 5)).astype(np.float32)
    spans, others = np.array([[2, 6]] * count), np.array([0.1, 0.2, 0.3])
    texts = ["a bank by the river"] * count
    word_map = WordMap("bank", texts, spans, None, vectors, others)
    height = int(re.search(r"height:(\d+)px", word_map._repr_html_())[1])
    word_map.save_html(tmp_path / "word.html")
    chromium.resize(1000, height)
    chromium.open(tmp_path / "word.html")
    assert chromium.value("document.documentElement.scrollHeight") <= height


def test_a_page_of_128_tokens_is_drawn(chromium, tmp_path):
    attention = drawn(12, 12, 128, 64)
    (tmp_path / "view.html").write_text(attention_page.html(**vars(attention)))
    chromium.resize()
    chromium.open(tmp_path / "view.html")
    chromium.click("document.querySelector('[aria-label=\"layer 11, head 11\"]')")
    chromium.click("document.querySelectorAll('.from .token')[127]")
    row = np.array(texts_of(chromium, ".to small"), float)
    np.testing.assert_allclose(row, attention.weights[11, 11, 127], atol=0.002)
