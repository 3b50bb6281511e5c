"""Laws of words in rows: each is predicted once, with the words around it."""

import numpy as np
import pytest
from tiny import LETTERS, wordpiece

from bert_jax import tokenizers
from bert_jax.data import word_windows


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    words = [*LETTERS, *(f"##{letter}" for letter in "abcdefghij")]
    return wordpiece(tmp_path_factory.mktemp("vocabulary"), words)


def laid(tokenizer, sentences, documents, max_length):
    """Rows as text, and for each word its row and the piece at its place."""
    pieces = word_windows.word_pieces(tokenizer, [text.split() for text in sentences])
    rows = word_windows.lay_out(tokenizer, pieces, documents, max_length)
    name = np.vectorize(tokenizer.id_to_token, otypes=[object])
    texts = [" ".join(name(ids)) for ids in rows.ids]
    places = zip(rows.row, rows.position, strict=True)
    return texts, [(int(i), str(name(rows.ids[i])[j])) for i, j in places]


def test_sentences_alone_are_rows_of_their_own(tokenizer):
    texts, words = laid(tokenizer, ["ab c", "d"], [0, 1], 9)
    assert texts == ["[CLS] a ##b c [SEP]", "[CLS] d [SEP]"]
    assert words == [(0, "a"), (0, "c"), (1, "d")]


def test_a_sentence_is_read_with_its_document_on_both_sides(tokenizer):
    sentences = ["a b c", "d e f", "g", "h i j"]
    texts, words = laid(tokenizer, sentences, [0, 0, 0, 0], 9)
    assert texts == [
        "[CLS] a b c d e f g [SEP]",  # nothing on the left: the right has all the room
        "[CLS] b c d e f g h [SEP]",
        "[CLS] d e f g h i j [SEP]",
        "[CLS] d e f g h i j [SEP]",
    ]
    assert [row for row, _ in words] == [0, 0, 0, 1, 1, 1, 2, 3, 3, 3]
    assert [piece for _, piece in words] == [*"abcdefghij"]


def test_no_word_of_another_document_is_seen(tokenizer):
    texts, _ = laid(tokenizer, ["a b", "c", "d", "e f"], [3, 3, 4, 4], 16)
    inner = ["a b c", "a b c", "d e f", "d e f"]
    assert texts == [f"[CLS] {x} [SEP]" for x in inner]


def test_no_word_around_a_sentence_is_cut(tokenizer):
    # Two pieces are free on either side of x; the words there have three and two.
    texts, _ = laid(tokenizer, ["abc", "x", "de"], [0, 0, 0], 7)
    assert texts[1] == "[CLS] x d ##e [SEP]"


def test_a_sentence_beyond_a_row_is_cut_between_words_each_with_neighbours(tokenizer):
    texts, words = laid(tokenizer, ["a b c d e f g h i"], [0], 8)
    assert texts == [
        "[CLS] a b c d e f [SEP]",  # of a b c
        "[CLS] c d e f g h [SEP]",  # of d e f
        "[CLS] d e f g h i [SEP]",  # of g h i
    ]
    expected = [*zip([0] * 3 + [1] * 3 + [2] * 3, "abcdefghi", strict=True)]
    assert words == expected


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("max_length", [3, 4, 8, 40])
@pytest.mark.parametrize("whole", [True, False])
def test_every_word_is_once_in_rows_that_are_never_too_long(
    tokenizer, seed, max_length, whole
):
    draw = np.random.default_rng(seed)
    sentences = [
        ["".join(draw.choice(list("abcdefgh"), draw.integers(1, 7))) for _ in range(n)]
        for n in draw.integers(0, 15, 12)
    ]
    pieces = word_windows.word_pieces(tokenizer, sentences)
    documents = np.arange(12) // 5 if whole else np.arange(12)
    rows = word_windows.lay_out(tokenizer, pieces, documents, max_length)
    words = [word for sentence in sentences for word in sentence]
    assert max(map(len, rows.ids)) <= max_length
    assert len(rows.row) == len(words) and (np.diff(rows.row) >= 0).all()
    for word, row, position in zip(words, rows.row, rows.position, strict=True):
        assert tokenizer.id_to_token(rows.ids[row][position]) == word[0]
    places = {*zip(rows.row.tolist(), rows.position.tolist(), strict=True)}
    assert len(places) == len(words)


def test_a_word_without_pieces_is_read_as_unknown(tokenizer):
    result = word_windows.word_pieces(tokenizer, [["a", "\u200d", "b", "\x00"], []])
    a, b = tokenizer.encode("a b")
    assert result == [[[a], [tokenizer.unk_id], [b], [tokenizer.unk_id]], []]


def test_names_of_special_tokens_are_words_like_any_other(tokenizer):
    ((_, result),) = word_windows.word_pieces(tokenizer, [["a", "[SEP]"]])
    assert tokenizer.sep_id not in result and len(result) > 1


def test_words_have_the_pieces_of_the_text_that_they_make_together(tokenizer):
    texts = ["a bc, d.e", "abc", "(x) y!", "  "]
    learnt = tokenizers.ByteLevelBPE.train([*texts, "the é abc abc"] * 9, 270)
    for chosen in (tokenizer, learnt):
        for text in [*texts[:3], "abc é a\u3000bc ,"]:
            (result,) = word_windows.word_pieces(chosen, [text.split(" ")])
            assert [i for word in result for i in word] == chosen.encode(text)
            assert len(result) == len(text.split(" "))
    (result,) = word_windows.word_pieces(learnt, [["abc", "abc", "a,"]])
    assert [learnt.decode(ids).strip() for ids in result] == ["abc", "abc", "a,"]


def test_a_piece_that_is_a_blank_belongs_to_the_word_behind_it():
    class Blanks:
        """As SentencePiece has it before a letter it does not know."""

        def encode_spans(self, texts):
            assert texts == ["a b"]
            return [([7, 8, 9], [(0, 1), (1, 2), (2, 3)])]

    assert word_windows.word_pieces(Blanks(), [["a", "b"]]) == [[[7], [8, 9]]]


def test_a_row_that_holds_no_word_is_refused(tokenizer):
    with pytest.raises(ValueError, match="max_length=2 holds no word; raise it"):
        word_windows.lay_out(tokenizer, [[[5]]], [0], 2)
