"""The kinds of tokenizer: one is trained by name, or loaded from any of its files."""

import os
import pathlib
from collections.abc import Iterable

from bert_jax import files
from bert_jax.files import counted
from bert_jax.tokenizers import unigram
from bert_jax.tokenizers.base import Tokenizer, read_backend
from bert_jax.tokenizers.bpe import ByteLevelBPE
from bert_jax.tokenizers.text import read_json
from bert_jax.tokenizers.unigram import SentencePiece
from bert_jax.tokenizers.vocabulary import (
    ALBERT,
    XLNET,
    read_vocabulary,
    special_tokens,
)
from bert_jax.tokenizers.wordpiece import WordPiece

KINDS: dict[str, type[Tokenizer]] = {
    "wordpiece": WordPiece,
    "bpe": ByteLevelBPE,
    "unigram": SentencePiece,
    "xlnet": SentencePiece,
}


def check(kind: str, lowercase: bool) -> None:
    """Raises ValueError for an unknown kind, or one without lower case.

    >>> check("words", lowercase=False)
    Traceback (most recent call last):
    ValueError: vocabulary='words' is unknown; choose one of wordpiece, ...
    """
    if kind not in KINDS:
        raise ValueError(
            f"vocabulary={kind!r} is unknown; choose one of {', '.join(KINDS)}"
        )
    if lowercase and kind == "bpe":
        raise ValueError(
            "vocabulary='bpe' keeps capitals, as RoBERTa's; set lowercase "
            "to false (`bert-jax prepare --cased`)"
        )


def train(
    kind: str, texts: Iterable[str], vocab_size: int, lowercase: bool
) -> Tokenizer:
    """Trains a vocabulary of a kind on a stream of texts, which is read once.

    The texts are sentences, so byte-level BPE reads a space before the first word of
    each: otherwise a word would have other pieces there.

    Args:
      kind: one of `KINDS`.
      vocab_size: pieces, special tokens included.
      lowercase: True to lower letters.

    Raises:
      ValueError: see `check`; and where the texts support no such vocabulary.

    >>> trained = train("wordpiece", ["low lower"] * 9, vocab_size=16, lowercase=True)
    >>> type(trained).__name__, trained.vocab_size
    ('WordPiece', 16)
    """
    check(kind, lowercase)
    if kind == "bpe":
        return ByteLevelBPE.train(texts, vocab_size, add_prefix_space=True)
    if kind == "wordpiece":
        return WordPiece.train(texts, vocab_size, lowercase)
    specials = XLNET if kind == "xlnet" else ALBERT
    return SentencePiece.train(texts, vocab_size, lowercase, specials)


_CLASSES: tuple[type[Tokenizer], ...] = (WordPiece, ByteLevelBPE, SentencePiece)
_BY_MODEL = {cls.model: cls for cls in _CLASSES}

# Classes whose vocab.txt is used by Google's rules, and those without rules; any other
# class has its own.
_WORDPIECE_CLASSES = (
    "PreTrainedTokenizer",
    "TokenizersBackend",
    "BertTokenizer",
    "DistilBertTokenizer",
    "ElectraTokenizer",
    "MobileBertTokenizer",
)


def load(path: str | os.PathLike, lowercase: bool | None = None) -> Tokenizer:
    """Opens the tokenizer of a published directory, or one of its files.

    A `tokenizer.json` is used unchanged. Without one, `vocab.txt`, `vocab.json` with
    `merges.txt`, or `spiece.model` is read with the settings of
    `tokenizer_config.json`.

    Args:
        lowercase: True to lower letters, if no file has this setting. The default is
            True, unless `vocab.txt` holds capital letters or the special tokens are
            XLNet's.

    Raises:
        ValueError: for anything missing, damaged, unknown or contradictory.

    >>> load("start/vocab.txt").encode("A b")
    [5, 6]
    """
    path = files.local_path(path)
    with files.readable_errors(path, "fetch it again"):
        return _load(path, lowercase)


def _load(path: pathlib.Path, lowercase: bool | None) -> Tokenizer:
    directory = path.parent if path.is_file() else path
    config = directory / "tokenizer_config.json"
    settings = read_json(config) if config.is_file() else {}
    if settings.get("do_lower_case") is None:
        settings["do_lower_case"] = lowercase
    file = path if path.is_file() else _first_file(directory)
    name = "vocab.txt" if file.suffix == ".txt" else file.name
    if name not in _OPENERS:
        raise ValueError(
            f"{file} is not a tokenizer; name one of {', '.join(_OPENERS)}"
        )
    tokenizer = _OPENERS[name](file, settings)
    _check_added(directory / "added_tokens.json", tokenizer)
    return tokenizer


def _first_file(directory: pathlib.Path) -> pathlib.Path:
    for name in _OPENERS:
        if (directory / name).is_file():
            return directory / name
    raise ValueError(
        f"{directory} holds no tokenizer, none of {', '.join(_OPENERS)}; "
        "check the path, or add the files of the published model"
    )


def _check_added(path: pathlib.Path, tokenizer: Tokenizer) -> None:
    """Raises ValueError for added pieces that only a tokenizer.json would hold."""
    added = read_json(path) if path.is_file() else {}
    missing = [i for i in added.values() if i >= tokenizer.vocab_size]
    if missing:
        raise ValueError(
            f"{path} adds {counted(len(missing), 'piece')} from id {min(missing)} on; "
            "save the tokenizer as a tokenizer.json with transformers, which holds them"
        )


def _from_tokenizer_json(path: pathlib.Path, settings: dict) -> Tokenizer:
    backend = read_backend(path)
    model = type(backend.model).__name__
    if model not in _BY_MODEL:
        raise ValueError(
            f"{path} holds a {model} model; only {', '.join(_BY_MODEL)} can be opened"
        )
    specials = special_tokens(backend.get_vocab(with_added_tokens=True), settings)
    return _BY_MODEL[model].from_backend(backend, path, specials)


def _from_vocab_txt(path: pathlib.Path, settings: dict) -> WordPiece:
    name = settings.get("tokenizer_class", "BertTokenizer").removesuffix("Fast")
    if name not in _WORDPIECE_CLASSES:
        raise ValueError(
            f"{path} belongs to a {name}, whose rules are not BERT's; "
            "save it as a tokenizer.json with the library it comes from"
        )
    vocabulary = read_vocabulary(path)
    lowercase = settings["do_lower_case"]
    return WordPiece.from_vocab(
        path,
        _is_uncased(vocabulary) if lowercase is None else lowercase,
        strip_accents=settings.get("strip_accents"),
        tokenize_chinese_chars=settings.get("tokenize_chinese_chars", True),
        specials=special_tokens(vocabulary, settings),
    )


def _is_uncased(vocabulary: dict[str, int]) -> bool:
    return not any(piece.isalpha() and piece != piece.lower() for piece in vocabulary)


def _from_vocab_json(path: pathlib.Path, settings: dict) -> ByteLevelBPE:
    return ByteLevelBPE.from_vocab(
        path,
        path.with_name("merges.txt"),
        add_prefix_space=settings.get("add_prefix_space", False),
        specials=special_tokens(read_json(path), settings),
    )


def _from_spiece(path: pathlib.Path, settings: dict) -> SentencePiece:
    return SentencePiece.from_vocab(
        path,
        settings["do_lower_case"],
        keep_accents=settings.get("keep_accents", False),
        specials=special_tokens(unigram.read(path).names, settings),
    )


_OPENERS = {
    "tokenizer.json": _from_tokenizer_json,
    "vocab.txt": _from_vocab_txt,
    "vocab.json": _from_vocab_json,
    "spiece.model": _from_spiece,
}
