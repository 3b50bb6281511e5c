"""Laws of every tokenizer: rows, literals, truncation, padding, decoding, errors."""

import pickle
import warnings

import numpy as np
import pytest

from bert_jax.tokenizers import WordPiece, load, rows

WORDS = "the cat sat on mat a dog ran . , [ ] ! mask é".split()
LINES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, "##s", "##ing", "##ed"]


@pytest.fixture(scope="module")
def vocab(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocab") / "vocab.txt"
    path.write_text("".join(f"{line}\n" for line in LINES), "utf-8", newline="\n")
    return path


@pytest.fixture(scope="module")
def tokenizer(vocab):
    return WordPiece.from_vocab(vocab)


def ids(*pieces):
    return [LINES.index(piece) for piece in pieces]


def test_a_row_is_cls_text_sep_and_a_pair_has_types(tokenizer):
    batch = tokenizer(["The cats", "a"], ["ran.", "dog"])
    a, b = batch["input_ids"]
    assert list(a) == ids("[CLS]", "the", "cat", "##s", "[SEP]", "ran", ".", "[SEP]")
    assert list(b[:5]) == ids("[CLS]", "a", "[SEP]", "dog", "[SEP]")
    assert batch["token_type_ids"].tolist() == [
        [0, 0, 0, 0, 0, 1, 1, 1],
        [0, 0, 0, 1, 1, 0, 0, 0],
    ]
    assert batch["attention_mask"].tolist() == [[1] * 8, [1] * 5 + [0] * 3]
    assert list(b[5:]) == [tokenizer.pad_id] * 3
    assert {array.dtype for array in batch.values()} == {np.dtype(np.int32)}


def test_one_string_is_a_batch_of_one(tokenizer):
    for name, array in tokenizer("the cat").items():
        np.testing.assert_array_equal(array, tokenizer(["the cat"])[name])


def test_padding_never_changes_other_tokens(tokenizer):
    short, long = tokenizer("the cat"), tokenizer(["the cat", "a dog ran on a mat"])
    padded = tokenizer("the cat", padding=11)
    for name, array in short.items():
        np.testing.assert_array_equal(long[name][:1, :4], array)
        np.testing.assert_array_equal(padded[name][:, :4], array)
    assert padded["input_ids"].shape == (1, 11)


def test_padding_must_hold_the_rows(tokenizer):
    with pytest.raises(ValueError, match="row 1 has 4 tokens, more than padding=3"):
        tokenizer(["a", "the cat"], padding=3)
    with pytest.raises(ValueError, match="rows of 3 and 4 tokens.*padding=True"):
        tokenizer(["a", "the cat"], padding=False)
    assert tokenizer(["a", "dog"], padding=False)["input_ids"].shape == (2, 3)


def test_no_texts_give_an_empty_batch(tokenizer):
    assert tokenizer([])["input_ids"].shape == (0, 0)
    assert tokenizer([], padding=5, offsets=True)["offsets"].shape == (0, 5, 2)
    assert tokenizer.encode_batch([]) == []
    assert tokenizer([""])["input_ids"].tolist() == [ids("[CLS]", "[SEP]")]


def test_truncation_pops_the_longer_side_and_b_on_ties():
    def popped(a, b, budget):
        while a + b > budget:
            a, b = (a - 1, b) if a > b else (a, b - 1)
        return [a, b]

    for a in range(9):
        for b in range(9):
            for budget in range(18):
                assert list(rows.truncated_lengths([a, b], budget)) == popped(
                    a, b, budget
                )


def test_truncated_rows_keep_their_special_tokens(tokenizer):
    batch = tokenizer("a dog ran on the mat", "the cat sat", max_length=8, offsets=True)
    expected = ids("[CLS]", "a", "dog", "ran", "[SEP]", "the", "cat", "[SEP]")
    assert batch["input_ids"].tolist() == [expected]
    assert batch["offsets"][0, 3].tolist() == [6, 9]
    row = tokenizer("a dog ran on the mat", max_length=4)["input_ids"][0]
    assert list(row) == ids("[CLS]", "a", "dog", "[SEP]")
    with pytest.raises(ValueError, match="max_length=2 does not hold the 3 special"):
        tokenizer("a", "a", max_length=2)


def test_a_long_text_keeps_its_beginning_its_end_or_a_quarter_and_the_rest(tokenizer):
    text = "a dog ran on the mat the cat sat".split()
    for truncation, first, last in (
        ("head", 4, 0),
        ("tail", 0, 4),
        ("head_tail", 1, 3),
    ):
        settings = {"max_length": 6, "offsets": True, "truncation": truncation}
        batch = tokenizer(" ".join(text), **settings)
        expected = [*text[:first], *text[len(text) - last :]]
        assert batch["input_ids"][0].tolist() == ids("[CLS]", *expected, "[SEP]")
        for word, (start, end) in zip(expected, batch["offsets"][0, 1:], strict=False):
            assert " ".join(text)[start:end] == word
        whole = tokenizer(" ".join(text), max_length=11, truncation=truncation)
        assert whole["input_ids"][0].tolist() == ids("[CLS]", *text, "[SEP]")
    assert rows.stays(510, "head_tail") == (128, 382)
    with pytest.raises(ValueError, match="truncation='left' is unknown; choose one of"):
        tokenizer("a", truncation="left")


def test_offsets_point_into_the_text(tokenizer):
    text = "  The CATs,\tÉ  sat\u200ding."
    batch = tokenizer(text, offsets=True)
    spans = [text[start:end] for start, end in batch["offsets"][0]]
    assert spans == ["", "The", "CAT", "s", ",", "É", "sat", "ing", ".", ""]


def test_special_literals_are_read_in_rows_and_never_in_raw_text(tokenizer):
    text = "the [MASK] [SEP][PAD] sat"
    marks = {tokenizer.mask_id, tokenizer.sep_id, tokenizer.pad_id}
    assert marks <= set(tokenizer(text)["input_ids"][0].tolist())
    raw = ids("the", "[", "mask", "]")
    assert tokenizer.encode(text)[:4] == raw
    assert tokenizer.encode_batch(["a", text])[1][:4] == raw
    assert tokenizer.tokenize(text)[:4] == ["the", "[", "mask", "]"]
    assert not set(tokenizer.encode(text)) & set(tokenizer.special_ids)


def test_special_ids_are_those_text_never_yields(tokenizer):
    assert tokenizer.special_ids == tuple(ids("[PAD]", "[CLS]", "[SEP]", "[MASK]"))
    assert tokenizer.encode("zebra") == [tokenizer.unk_id]


def test_continuations_are_the_pieces_marked_so(tokenizer):
    marked = [LINES[i] for i in np.flatnonzero(tokenizer.is_continuation)]
    assert marked == ["##s", "##ing", "##ed"]
    assert tokenizer.is_continuation.shape == (tokenizer.vocab_size,)


def test_decoding_joins_pieces_and_leaves_special_tokens_out(tokenizer):
    row = tokenizer("The cats, sat!", padding=12)["input_ids"][0]
    assert tokenizer.decode(row) == "the cats, sat!"


@pytest.mark.parametrize("outside", [len(LINES), -1])
def test_an_id_outside_the_vocabulary_is_refused(tokenizer, outside):
    message = f"id {outside} is outside the vocabulary of {len(LINES)} pieces"
    with pytest.raises(ValueError, match=message):
        tokenizer.decode([5, outside])
    with pytest.raises(ValueError, match=message):
        tokenizer.id_to_token(outside)


def test_pieces_and_ids_are_inverse(tokenizer):
    for i, line in enumerate(LINES):
        assert tokenizer.token_to_id(line) == i
        assert tokenizer.id_to_token(i) == line
    with pytest.raises(ValueError, match="'zebra' is not one of the 23 pieces"):
        tokenizer.token_to_id("zebra")


def test_lone_surrogates_are_replaced_and_counted_in_one_warning(tokenizer):
    texts = ["the cat", "a\ud800 dog\udfff", "\udc00"]
    for run in (tokenizer.encode_batch, tokenizer):
        with pytest.warns(UserWarning, match="3 lone surrogates.*row 1") as caught:
            run(texts)
        assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert tokenizer.encode_batch(texts) == [ids("the", "cat"), ids("a", "dog"), []]
        spans = tokenizer(texts[1], offsets=True)["offsets"][0]
    assert spans.tolist() == [[0, 0], [0, 1], [3, 6], [0, 0]]


@pytest.mark.parametrize("wrong", [None, 3, b"a", ("a", "dog"), float("nan")])
def test_a_value_that_is_no_string_is_refused_with_its_row(tokenizer, wrong):
    for run in (tokenizer, tokenizer.encode_batch):
        with pytest.raises(ValueError, match=r"texts\[1\] is .*, not a string"):
            run(["a", wrong])


def test_texts_and_pairs_must_match_in_number(tokenizer):
    with pytest.raises(ValueError, match="2 texts came with 1 pair;"):
        tokenizer(["a", "dog"], ["ran"])


def test_a_pickled_tokenizer_is_the_same_tokenizer(tokenizer):
    copy = pickle.loads(pickle.dumps(tokenizer))
    assert copy.fingerprint == tokenizer.fingerprint
    assert copy.specials == tokenizer.specials
    text = "[MASK] the cats!"
    assert copy.encode(text) == tokenizer.encode(text)
    assert copy(text)["input_ids"].tolist() == tokenizer(text)["input_ids"].tolist()


def test_the_fingerprint_differs_between_vocabularies_and_settings(vocab, tmp_path):
    def changed(**settings):
        return WordPiece.from_vocab(vocab, **settings).fingerprint

    other = tmp_path / "vocab.txt"
    other.write_text(vocab.read_text("utf-8") + "zebra\n", "utf-8")
    prints = [
        changed(),
        changed(lowercase=False),
        changed(strip_accents=False),
        changed(tokenize_chinese_chars=False),
        WordPiece.from_vocab(other).fingerprint,
    ]
    assert len(set(prints)) == len(prints)
    assert changed() == prints[0] == load(vocab).fingerprint
