"""Laws of windows, and of answers from logits: those of Google's run_squad.py."""

import json
from pathlib import Path

import numpy as np
import pytest
from tiny import LETTERS, wordpiece

from bert_jax import tokenizers
from bert_jax.data import qa_windows
from bert_jax.data.qa_windows import Window, WindowConfig
from bert_jax.inference import span_decoding

GOLDEN = json.loads(
    (Path(__file__).parents[1] / "goldens/squad.json").read_text("utf-8")
)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vocabulary")
    return wordpiece(folder, GOLDEN["vocabulary"])


@pytest.fixture(scope="module")
def examples():
    """The golden questions, each with its context."""
    return [
        (question, paragraph["context"])
        for article in GOLDEN["dataset"]["data"]
        for paragraph in article["paragraphs"]
        for question in paragraph["qas"]
    ]


@pytest.fixture(scope="module")
def features(tokenizer, examples):
    questions, contexts = zip(*examples, strict=True)
    texts = [question["question"] for question in questions]
    return qa_windows.read(
        tokenizer, texts, contexts, WindowConfig(**GOLDEN["cutting"])
    )


def test_windows_are_those_of_google_s_code(features):
    assert len(features.windows) == len(GOLDEN["windows"]) > 100
    for window, golden in zip(features.windows, GOLDEN["windows"], strict=True):
        assert window.question == golden["question"]
        assert window.input_ids.tolist() == golden["input_ids"]
        assert window.token_type_ids.tolist() == golden["token_type_ids"]


def test_targets_in_windows_are_those_of_google_s_code(features, examples):
    kinds = set()
    for window, golden in zip(features.windows, GOLDEN["windows"], strict=True):
        answers = examples[window.question][0]["answers"]
        target = [0, 0]
        if answers:
            start = answers[0]["answer_start"]
            place = start, start + len(answers[0]["text"])
            target = qa_windows.target(window, features.spans[window.question], place)
        assert target == golden["target"]
        kinds.add((bool(answers), target == [0, 0]))
    assert kinds == {(False, True), (True, True), (True, False)}


def test_a_token_belongs_to_the_window_where_it_has_the_most_context(features):
    for rows in features.by_question():
        windows = [features.windows[i] for i in rows]
        owner = qa_windows.owners(windows, len(features.spans[windows[0].question]))
        for number, (row, window) in enumerate(zip(rows, windows, strict=True)):
            held = owner[window.start : window.start + window.length]
            assert (held == number).tolist() == GOLDEN["windows"][row]["owned"]


@pytest.mark.parametrize("version", ["squad_1", "squad_2"])
def test_answers_are_those_of_google_s_code(version, features, examples):
    golden, null = GOLDEN[version], version == "squad_2"
    logits = [np.array(x).T / GOLDEN["parts"] for x in GOLDEN["logits"]]
    empty = 0
    for (question, context), rows in zip(examples, features.by_question(), strict=True):
        key = question["id"]
        predictions = span_decoding.decode(
            context,
            features.spans[features.windows[rows[0]].question],
            [features.windows[i] for i in rows],
            [logits[i] for i in rows],
            null=null,
            **GOLDEN["decoding"],
        )
        best = golden["nbest"][key]
        assert [x.text for x in predictions.best] == [x["text"] for x in best]
        assert [x[3:] for x in predictions.best] == [
            (x["start_logit"], x["end_logit"]) for x in best
        ]
        expected = [x["probability"] for x in best]
        np.testing.assert_allclose(predictions.probabilities, expected, rtol=1e-12)
        chosen = predictions.chosen(0.0 if null else None)[0]
        assert chosen.text == golden["predictions"][key]
        assert chosen.text == context[chosen.start : chosen.end]
        if null:
            assert predictions.null_odds == golden["null_odds"][key]
        empty += not chosen.text
    assert (0 < empty < len(examples)) == null


@pytest.mark.parametrize("context, answer, google", GOLDEN["slices"])
def test_an_answer_is_a_slice_where_google_s_code_searches_for_it(
    context, answer, google, tokenizer
):
    features = qa_windows.read(tokenizer, ["what?"], [context], WindowConfig(60))
    (window,) = features.windows
    start = context.index(answer)
    place = start, start + len(answer)
    first, last = qa_windows.target(window, features.spans[0], place)
    logits = np.zeros((len(window.input_ids), 2))
    logits[first, 0] = logits[last, 1] = 9
    best = span_decoding.decode(
        context, features.spans[0], [window], [logits], null=False
    )
    assert best.best[0][:3] == (answer, *place)
    # Google's either is the same up to blanks, or has what stands beside it too.
    assert answer.split() == google.split() or answer in google


def test_question_tokens_and_padding_are_never_part_of_an_answer(tokenizer):
    features = qa_windows.read(tokenizer, ["what is it"], ["a b c"], WindowConfig(20))
    (window,) = features.windows
    logits = np.full((20, 2), 50.0)
    inside = slice(window.first, window.first + window.length)
    logits[inside] = [[1, 0], [0, 2], [0, 1]]
    arguments = "a b c", features.spans[0], [window], [logits]
    predictions = span_decoding.decode(*arguments, null=False)
    assert predictions.best[0].text == "a b"
    # Nor do they take the place of one of the likeliest starts and ends.
    logits = np.zeros((len(window.input_ids), 2))
    logits[inside] = [[3, 1], [2, 2], [1, 3]]
    one, other = (
        span_decoding.decode(
            "a b c", features.spans[0], [window], [x], n_best=3, null=True
        )
        for x in (logits, np.pad(logits, ((0, 2), (0, 0)), constant_values=9))
    )
    assert one.best == other.best and len(one.best) == 4


def test_a_text_that_occurs_twice_is_one_answer_with_the_better_logits(tokenizer):
    features = qa_windows.read(tokenizer, ["what?"], ["a b a"], WindowConfig(20))
    (window,) = features.windows
    logits = np.zeros((len(window.input_ids), 2))
    logits[window.first + 2] = 3
    logits[window.first] = 2
    predictions = span_decoding.decode(
        "a b a", features.spans[0], [window], [logits], null=False
    )
    assert [x.text for x in predictions.best].count("a") == 1
    assert predictions.best[0] == ("a", 4, 5, 3, 3)
    assert predictions.best[1] == ("a b a", 0, 5, 2, 3)


def test_there_is_an_answer_even_if_no_likely_end_follows_a_likely_start(tokenizer):
    context = "a b c d e f"
    features = qa_windows.read(tokenizer, ["what?"], [context], WindowConfig(20))
    (window,) = features.windows
    logits = np.zeros((len(window.input_ids), 2))
    logits[-4:, 0] = 5
    logits[: window.first + 2, 1] = 5
    for null in (False, True):
        predictions = span_decoding.decode(
            context, features.spans[0], [window], [logits], null=null, n_best=2
        )
        assert predictions.chosen(None)[0].text
        assert (
            np.isfinite(predictions.null_odds) and predictions.probabilities.sum() == 1
        )


@pytest.mark.parametrize("context", ["", " \n", "\x00\x07"])
def test_a_context_without_a_token_has_no_answer(context, tokenizer):
    features = qa_windows.read(tokenizer, ["what?"], [context], WindowConfig(20))
    (window,) = features.windows
    logits = np.zeros((len(window.input_ids), 2))
    for threshold in (None, 0.0):
        null = threshold is not None
        predictions = span_decoding.decode(
            context, features.spans[0], [window], [logits], null=null
        )
        assert predictions.chosen(threshold) == [("", 0, 0, 1.0)]


def test_above_the_threshold_no_answer_is_first_and_answers_follow(tokenizer):
    context = "a b"
    features = qa_windows.read(tokenizer, ["what?"], [context], WindowConfig(20))
    (window,) = features.windows
    logits = np.zeros((len(window.input_ids), 2))
    logits[0] = 1
    logits[window.first, :] = 2
    arguments = context, features.spans[0], [window], [logits]
    predictions = span_decoding.decode(*arguments, null=True)
    assert predictions.null_odds == -2
    texts = [x.text for x in predictions.chosen(-2)]
    assert texts[0] == "a" and "" in texts[1:]
    texts = [x.text for x in predictions.chosen(-2.5)]
    assert texts[:2] == ["", "a"]
    assert "" not in [x.text for x in span_decoding.decode(*arguments, null=False).best]


def test_no_answer_has_its_least_logit_of_all_windows(tokenizer):
    features = qa_windows.read(
        tokenizer, ["a?"], ["a b c d e f g h"], WindowConfig(10, 2)
    )
    assert len(features.windows) > 2
    logits = [np.zeros((len(x.input_ids), 2)) for x in features.windows]
    for number, x in enumerate(logits):
        x[0] = [7 + number % 2, 1]
    (predictions,) = span_decoding.decode_all(
        ["a b c d e f g h"], features, logits, null=True
    )
    assert predictions.null_odds == 8


def test_a_longer_window_counts_as_a_little_context():
    one, other = (Window(0, None, None, 5, *x) for x in ((0, 300), (228, 100)))
    owner = qa_windows.owners([one, other], 328)
    # At 264 there are 35 tokens on the lesser side, and 36 in the other window.
    assert owner.tolist() == [0] * 265 + [1] * 63


def test_a_target_is_the_tokens_of_the_answer_or_the_first_token(tokenizer):
    context = "a b c d e f g"
    ids = tokenizer.encode(context)
    features = qa_windows.read(tokenizer, ["what?"], [context], WindowConfig(9, 2))
    assert len(features.windows) == 3
    for window in features.windows:
        for a in range(7):
            for b in range(a, 7):
                place = int(features.spans[0][a, 0]), int(features.spans[0][b, 1])
                first, last = qa_windows.target(window, features.spans[0], place)
                inside = window.start <= a and b < window.start + window.length
                assert bool(first and last) == inside
                if inside:
                    assert window.input_ids[first : last + 1].tolist() == ids[a : b + 1]
    assert qa_windows.target(window, features.spans[0], (1, 2)) == [0, 0]


def test_windows_hold_every_token_of_a_context():
    for length in range(40):
        for room in (1, 3, 10):
            for stride in (1, 2, 10, 50):
                starts = qa_windows.starts(length, room, stride)
                held = {i for start in starts for i in range(start, start + room)}
                assert held >= set(range(length))
                assert starts[0] == 0 and (len(starts) == 1 or starts[-1] < length)


def test_strides_and_questions_are_google_s_or_a_third_of_a_short_window():
    assert (WindowConfig(384).stride, WindowConfig(384).query) == (128, 64)
    assert (WindowConfig(512).stride, WindowConfig(512).query) == (128, 64)
    assert (WindowConfig(96).stride, WindowConfig(96).query) == (32, 32)
    assert (WindowConfig(96, 50, 7).stride, WindowConfig(96, 50, 7).query) == (50, 7)


@pytest.mark.parametrize(
    "config, message",
    [
        (WindowConfig(20, 0), "doc_stride=0; it must be at least 1, or None"),
        (WindowConfig(20, None, -1), "max_query=-1; it must be at least 1, or None"),
        (
            WindowConfig(20, None, 17),
            "max_length=20 leaves no room for a context beside 3",
        ),
        (WindowConfig(4), "special tokens and max_query=1; raise it"),
    ],
)
def test_a_window_without_room_for_a_context_is_an_error(config, message, tokenizer):
    with pytest.raises(ValueError, match=message):
        qa_windows.read(tokenizer, ["a"], ["b"], config)


def test_accents_stay_with_their_letter_and_spaces_are_left_out():
    assert span_decoding.trim("cafe\u0301 x", 0, 4) == (0, 5)
    assert span_decoding.trim("a  b c", 1, 5) == (3, 4)
    assert span_decoding.trim("   ", 0, 3) == (3, 3)


def test_pieces_that_begin_with_a_space_make_no_space_in_an_answer():
    context = "Ada Lovelace wrote the first  program in Zürich"
    tokenizer = tokenizers.ByteLevelBPE.train([context] * 3, vocab_size=280)
    features = qa_windows.read(
        tokenizer, ["Who wrote it?"], [context], WindowConfig(60)
    )
    (window,) = features.windows
    for answer in ("Lovelace", "first  program", "Zürich"):
        start = context.index(answer)
        place = start, start + len(answer)
        first, last = qa_windows.target(window, features.spans[0], place)
        logits = np.zeros((len(window.input_ids), 2))
        logits[first, 0] = logits[last, 1] = 9
        (predictions,) = span_decoding.decode_all(
            [context], features, [logits], null=False
        )
        assert predictions.best[0][:3] == (answer, *place)


def test_questions_that_are_cut_are_counted(tmp_path):
    tokenizer = wordpiece(tmp_path, LETTERS)
    features = qa_windows.read(
        tokenizer, ["a b c", "a"], ["d", "d"], WindowConfig(20, None, 2)
    )
    assert features.cut == 1
    assert isinstance(features.windows[0], Window)
    assert len(features.windows[0].input_ids) == 2 + 1 + 3
