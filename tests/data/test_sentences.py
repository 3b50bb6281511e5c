import time

import pytest

from bert_jax.data.sentences import split


@pytest.mark.parametrize(
    "text",
    [
        "It rained. | We left.",
        "Dr. Smith met Mr. J. R. R. Tolkien at 3.14 p.m. on Monday. | He waved.",
        "Some fruits, e.g. apples, i.e. cheap ones, cost 2.5 dollars. | Buy two!",
        'He said "Hello there." | Then he left.',
        "She asked “Why?” | Nobody knew (or told her). | Silence.",
        "Wait... what? | Yes! | No?!",
        "Call threading.Thread or numpy.Array here. | It returns.",
        "10. First we go. | 2. Then we rest. | A. Not yet. | Plan B. | It ended.",
        "これは文です。|次の文です！|本当？",
        "यह वाक्य है। | दूसरा वाक्य।",
        "هل هذا سؤال؟ | نعم هو.",
        "no stop at all",
    ],
)
def test_a_text_is_split_where_a_reader_would(text):
    expected = [part.strip() for part in text.split("|")]
    assert split(text.replace("|", "").replace("  ", " ")) == expected


@pytest.mark.parametrize("text", ["", " ", "\n\t", "\u00a0"])
def test_blank_text_has_no_sentences(text):
    assert split(text) == []


def test_splitting_loses_no_character_but_blanks():
    text = 'One "two. Three" four. Five (six.) Seven?Eight! 9.5 … ' * 400
    together = "".join(split(text))
    assert together.replace(" ", "") == text.replace(" ", "")


def test_sentences_do_not_depend_on_where_a_window_ends():
    one = "The cat, which was black, sat on the mat in the hall. "
    assert set(split(one * 1_000)) == {one.strip()}


def test_a_stray_quotation_mark_spoils_few_sentences():
    text = 'He said "go. ' + "The dog barked at the red car. " * 1_000
    assert len(split(text)) > 900


def test_a_long_quotation_is_taken_apart():
    text = 'He wrote: "' + "The dog barked at the red car. " * 20 + '" Nobody read it.'
    assert max(map(len, split(text))) < 100


@pytest.mark.parametrize("unit", ["word ", "'", '"', "a. ", "x"])
def test_time_is_linear_even_where_nothing_ends(unit):
    start = time.process_time()
    split(unit * (400_000 // len(unit)))
    assert time.process_time() - start < 3  # a quadratic run takes 15 seconds
