"""Training vocabularies: a function of the texts, of exactly the requested size."""

import pickle
import random

import pytest
from tokenizers.normalizers import Lowercase
from tokenizers.pre_tokenizers import WhitespaceSplit

from bert_jax.tokenizers import ByteLevelBPE, SentencePiece, WordPiece, counting

LEARNERS = (WordPiece, ByteLevelBPE, SentencePiece)
SIZES = {WordPiece: 120, ByteLevelBPE: 320, SentencePiece: 70}


def corpus():
    """A stream of made-up words, some much more frequent than others."""
    rng = random.Random(5)
    syllables = "ba do ki lu me no pa ri su te".split()
    words = ["".join(rng.choices(syllables, k=rng.randint(1, 4))) for _ in range(300)]
    for _ in range(400):
        yield " ".join(words[int(len(words) * rng.random() ** 2)] for _ in range(12))


@pytest.fixture(scope="module", params=LEARNERS, ids=lambda cls: cls.__name__)
def learned(request):
    return request.param.train(corpus(), SIZES[request.param])


def test_the_vocabulary_has_the_requested_size(learned):
    assert learned.vocab_size == SIZES[type(learned)]


def test_learning_twice_gives_the_same_vocabulary(learned):
    again = type(learned).train(corpus(), learned.vocab_size)
    assert again.fingerprint == learned.fingerprint


def test_pickling_keeps_fingerprint_and_ids(learned):
    copy = pickle.loads(pickle.dumps(learned))
    assert copy.fingerprint == learned.fingerprint
    texts = list(corpus())
    assert copy.encode_batch(texts) == learned.encode_batch(texts)


def test_a_trained_tokenizer_knows_its_training_texts(learned):
    texts = list(corpus())
    encoded = learned.encode_batch(texts)
    assert not any(learned.unk_id in ids for ids in encoded)
    assert [learned.decode(ids) for ids in encoded[:20]] == texts[:20]
    # Learning pays: fewer pieces than characters.
    assert sum(map(len, encoded)) < sum(map(len, texts)) / 2


def test_special_tokens_come_first():
    def first(tokenizer):
        return [tokenizer.id_to_token(i) for i in range(5)]

    bert = "[PAD] [UNK] [CLS] [SEP] [MASK]"
    assert first(WordPiece.train(corpus(), 120)) == bert.split()
    roberta = "<s> <pad> </s> <unk> <mask>"
    assert first(ByteLevelBPE.train(corpus(), 320)) == roberta.split()
    albert = "<pad> <unk> [CLS] [SEP] [MASK]"
    assert first(SentencePiece.train(corpus(), 70)) == albert.split()


@pytest.mark.parametrize("learner", LEARNERS)
def test_a_corpus_too_small_raises_with_the_number_of_pieces_it_supports(learner):
    with pytest.raises(ValueError, match=r"support only (\d+) pieces; set") as raised:
        learner.train(corpus(), 60_000)
    supported = int(str(raised.value).split("only ")[1].split()[0])
    assert learner.train(corpus(), supported).vocab_size == supported


@pytest.mark.parametrize("learner", LEARNERS)
def test_a_vocabulary_too_small_for_the_characters_is_refused(learner):
    with pytest.raises(
        ValueError, match="vocab_size=9 does not hold the .* characters"
    ):
        learner.train(corpus(), 9)


@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.parametrize("texts", [[], ["", " \n"]])
def test_texts_without_a_word_are_refused(learner, texts):
    with pytest.raises(ValueError, match="hold no word; give more text"):
        learner.train(iter(texts), 300)


def test_a_text_that_is_no_string_is_refused_with_its_row():
    with pytest.raises(ValueError, match="text 1 is None"):
        WordPiece.train(["a word", None], 30)


def test_lone_surrogates_in_training_texts_are_warned_of_once():
    with pytest.warns(UserWarning, match="2 lone surrogates.*row 1") as caught:
        WordPiece.train(["ab ab", "c\ud800d", "cd \ud801"], 13)
    assert len(caught) == 1


def test_literals_of_special_tokens_are_learned_as_text():
    texts = ["[MASK] [MASK] mask"] * 3
    tokenizer = WordPiece.train(texts, 17)
    assert tokenizer.tokenize("[MASK]") == ["[", "mask", "]"]


def test_rare_characters_are_left_out_with_their_words():
    texts = ["abc ab"] * 5 + ["xyz"]
    tokenizer = WordPiece.train(texts, 12, alphabet_size=3)
    assert tokenizer.tokenize("abc xyz") == ["abc", "[UNK]"]


def test_lowercase_is_a_choice():
    cased = WordPiece.train(["Ab Ab ab"] * 3, 11, lowercase=False)
    assert cased.tokenize("Ab ab") == ["Ab", "ab"]
    uncased = WordPiece.train(["Ab Ab ab"] * 3, 9)
    assert uncased.tokenize("Ab ab") == ["ab", "ab"]


def test_memory_is_bounded_by_forgetting_the_rarest_words(monkeypatch):
    monkeypatch.setattr(counting, "MOST_WORDS", 50)
    words = [f"often rare{i} twice{i // 2}" for i in range(500)]
    counts = counting.word_counts(words, Lowercase(), WhitespaceSplit())
    assert len(counts) <= 52
    assert counts["often"] == 500


def test_counts_are_repeated_exactly():
    counts = {"a": 1, "b": 2500, "c": 999}
    lines = " ".join(counting.repeated(counts)).split()
    assert {word: lines.count(word) for word in counts} == counts
