"""Laws of byte-level BPE and SentencePiece that WordPiece does not share."""

import pickle
import random

import numpy as np
import pytest
import sentencepiece
import tokenizers
from tokenizers import models

from bert_jax.tokenizers import ByteLevelBPE, SentencePiece, load, unigram
from bert_jax.tokenizers.vocabulary import ALBERT, XLNET

WORDS = (
    "the cats sat on a mat and dogs ran , naïve “quotes” 2,310 ( more ) Éclair".split()
)


def corpus():
    rng = random.Random(3)
    return [" ".join(rng.choices(WORDS, k=9)) for _ in range(100)]


@pytest.fixture(scope="module")
def roberta():
    return ByteLevelBPE.train(corpus(), 290)


@pytest.fixture(scope="module")
def albert():
    return SentencePiece.train(corpus(), 36)


@pytest.fixture(scope="module")
def xlnet(tmp_path_factory):
    counts = {word: 2 + len(word) for word in WORDS}
    path = tmp_path_factory.mktemp("xlnet") / "spiece.model"
    path.write_bytes(unigram.learn(counts, 36, XLNET).proto)
    return load(path.parent)


def named(tokenizer, batch):
    return [[tokenizer.id_to_token(i) for i in row] for row in batch["input_ids"]]


def test_robertas_pairs_have_two_separators_and_one_type(roberta):
    batch = roberta(["the cats"], ["ran"])
    assert named(roberta, batch) == [
        ["<s>", *roberta.tokenize("the cats"), "</s>", "</s>"]
        + [*roberta.tokenize("ran"), "</s>"]
    ]
    assert not batch["token_type_ids"].any()


def test_bytes_leave_no_text_unknown_and_come_back(roberta):
    rng = random.Random(1)
    codes = [*range(0xD800), *range(0xE000, 0x110000)]
    texts = ["".join(map(chr, rng.choices(codes, k=20))) for _ in range(200)]
    texts += ["  two  spaces\n\ttab ", "<mask> </s>", "e\u0301 é ﬁ"]
    for text, ids in zip(texts, roberta.encode_batch(texts), strict=True):
        assert roberta.unk_id not in ids
        assert not set(ids) & set(roberta.special_ids)
        assert roberta.decode(ids) == text


def test_robertas_mask_takes_the_space_before_it(roberta):
    row = named(roberta, roberta("the <mask> sat"))[0]
    assert row[1:-1] == ["the", "<mask>", *roberta.tokenize(" sat")]


def test_offsets_of_bytes_leave_spaces_out(roberta):
    text = " the  naïve cats"
    spans = roberta(text, offsets=True)["offsets"][0]
    covered = "".join(text[start:end] for start, end in np.unique(spans, axis=0))
    assert covered == "thenaïvecats"


def test_a_leading_space_is_added_with_add_prefix_space(roberta, tmp_path):
    roberta.save(tmp_path, {"add_prefix_space": True})
    (tmp_path / "tokenizer.json").unlink()
    spaced = load(tmp_path)
    assert spaced.encode("cats") == roberta.encode(" cats") != roberta.encode("cats")


def test_continuations_are_pieces_without_a_leading_space(roberta, albert):
    for tokenizer, mark in ((roberta, "Ġ"), (albert, "▁")):
        for i in range(tokenizer.vocab_size):
            starts = tokenizer.id_to_token(i).startswith(mark)
            special = i in (*tokenizer.special_ids, tokenizer.unk_id)
            assert tokenizer.is_continuation[i] == (not starts and not special)


def test_alberts_rows_are_berts(albert):
    batch = albert(["the cats", "a"], ["ran", "the dogs"])
    assert named(albert, batch)[0][: batch["attention_mask"][0].sum()] == [
        *("[CLS]", *albert.tokenize("the cats"), "[SEP]"),
        *(*albert.tokenize("ran"), "[SEP]"),
    ]
    assert batch["token_type_ids"].max() == 1


def test_albert_folds_case_accents_and_quotes(albert):
    assert albert.encode("ÉCLAIR NAÏVE") == albert.encode("eclair naive")
    assert albert.tokenize("``a''") == albert.tokenize('"a"')


def test_xlnets_rows_end_with_cls_and_are_padded_on_the_left(xlnet):
    batch = xlnet(["the cats ran", "a"], ["on", "the"], offsets=True)
    short = named(xlnet, batch)[1]
    tail = [*xlnet.tokenize("a"), "<sep>", *xlnet.tokenize("the"), "<sep>", "<cls>"]
    padding = len(short) - len(tail)
    assert padding > 0
    assert short == ["<pad>"] * padding + tail
    assert batch["attention_mask"][1].tolist() == [0] * padding + [1] * len(tail)
    assert batch["token_type_ids"][:, -2:].tolist() == [[1, 2], [1, 2]]
    assert batch["offsets"][1, padding].tolist() == [0, 1]


def test_xlnet_keeps_case(xlnet):
    assert xlnet.encode("Eclair") != xlnet.encode("eclair")


def test_control_pieces_in_raw_text_are_text(albert, xlnet):
    for tokenizer in (albert, xlnet):
        names = " ".join(tokenizer.specials.names.values())
        assert not set(tokenizer.encode(names)) & set(tokenizer.special_ids)
        assert tokenizer.mask_id in tokenizer(names)["input_ids"]


def test_pieces_are_those_of_sentencepiece_on_ordinary_text(albert, tmp_path):
    albert.save(tmp_path)
    texts = [*corpus(), "unseen words, 3 of them", "(the) mat"]
    theirs = sentencepiece.SentencePieceProcessor(f"{tmp_path}/spiece.model")
    plain = [text.lower().replace("ï", "i").replace("é", "e") for text in texts]
    assert albert.encode_batch(texts) == theirs.encode(plain)


def test_scores_read_back_inexactly_keep_the_fingerprint():
    names = [(name, 0.0) for name in ALBERT.names.values()]
    # The library reads this score back as -1.7055832147598269.
    backend = tokenizers.Tokenizer(
        models.Unigram([*names, ("a", -1.7055832147598267)], 1)
    )
    tokenizer = SentencePiece.from_backend(backend, "scores")
    copy = pickle.loads(pickle.dumps(tokenizer))
    assert copy.fingerprint == tokenizer.fingerprint


@pytest.mark.parity
def test_transformers_reads_a_saved_xlnet_alike(xlnet, tmp_path):
    transformers = pytest.importorskip("transformers")
    xlnet.save(tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    texts, pairs = ["the cats ran", "a <mask>"], ["on", "the"]
    batch = theirs(texts, pairs, padding=True)
    for name, array in xlnet(texts, pairs).items():
        assert array.tolist() == batch[name], name
