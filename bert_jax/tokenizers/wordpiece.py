"""BERT's own tokenizer: basic cleaning, then WordPiece (Devlin et al., 2018)."""

import json
import os
from collections.abc import Iterable

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers.processors import TemplateProcessing
from tokenizers.trainers import WordPieceTrainer

from bert_jax import files
from bert_jax.tokenizers.base import Tokenizer
from bert_jax.tokenizers.counting import frequent_characters, repeated, word_counts
from bert_jax.tokenizers.text import streamed
from bert_jax.tokenizers.vocabulary import (
    BERT,
    SpecialTokens,
    check_specials,
    check_trained_size,
    read_vocabulary,
)

# Google's limit; the files that transformers writes say 100. Longer words are unknown.
MAX_CHARACTERS_PER_WORD = 200

# The library's own BertNormalizer drops private-use characters, which Google keeps,
# and its tables of control characters, marks and punctuation end with Unicode 8.
# The patterns below go before and after it with current tables.
_DROPPED = r"[\p{Cc}\p{Cf}\x{FFFD}&&[^\t\n\r]]"
_MARKS = r"\p{Mn}"
_PUNCTUATION = r"[\p{P}&&[^\x{0}-\x{7F}]]"
# CJK Extension E starts here; the library's range misses its first 256 characters.
_CJK_EXTENSION_E = r"[\x{2B820}-\x{2B91F}]"
# str.lower() gives a sigma that ends a word its final form; the library does not.
_FINAL_SIGMA = (
    r"(?<=\p{Cased}\p{Case_Ignorable}*)\x{3A3}(?!\p{Case_Ignorable}*\p{Cased})"
)


class WordPiece(Tokenizer):
    """WordPiece over Google's BasicTokenizer; pieces inside a word begin with `##`.

    The ids are those of Google's `tokenization.py`, but for the Unicode versions of
    this library and of the Python that runs Google's code: characters that one of them
    does not know yet may be dropped, split or lowered by the other only. Four older
    characters differ too (U+166D, U+1734, U+111C9, U+11938), and lone surrogates,
    which are dropped here and make their word unknown there.

    >>> trained = WordPiece.train(["low lower lowest"] * 9, vocab_size=20)
    >>> trained.tokenize("Lower lows, low")
    ['low', '##e', '##r', 'low', '##s', '[UNK]', 'low']
    """

    model = "WordPiece"

    @classmethod
    def from_vocab(
        cls,
        path: str | os.PathLike,
        lowercase: bool = True,
        *,
        strip_accents: bool | None = None,
        tokenize_chinese_chars: bool = True,
        specials: SpecialTokens = BERT,
    ) -> "WordPiece":
        """Opens a `vocab.txt`: one piece a line, its id the line's number.

        Args:
            strip_accents: by default as `lowercase`, as in Google's code.

        Raises:
            ValueError: for repeated lines, and special tokens that the file lacks.
        """
        vocabulary = read_vocabulary(path)
        check_specials(specials, vocabulary, path)
        strip = lowercase if strip_accents is None else strip_accents
        cjk = tokenize_chinese_chars
        return cls(_backend(vocabulary, specials, lowercase, strip, cjk), specials)

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        vocab_size: int,
        lowercase: bool = True,
        *,
        min_frequency: int = 2,
        alphabet_size: int = 1000,
    ) -> "WordPiece":
        """Trains a vocabulary on a stream of texts, which is read once.

        The special tokens take ids 0 to 4: [PAD] [UNK] [CLS] [SEP] [MASK].

        Args:
            min_frequency: the least count of two adjacent pieces that are joined.
            alphabet_size: the most frequent characters that are kept as pieces; give
                10,000 for Chinese or Japanese.

        Raises:
            ValueError: where the texts support no vocabulary of `vocab_size`.
        """
        normalizer = _normalizer(lowercase, lowercase, True)
        counts = word_counts(streamed(texts), normalizer, _pre_tokenizer(True))
        vocabulary = _learned(counts, vocab_size, min_frequency, alphabet_size)
        check_trained_size(vocabulary, vocab_size)
        return cls(_backend(vocabulary, BERT, lowercase, lowercase, True), BERT)

    def save(
        self, directory: str | os.PathLike, settings: dict[str, object] | None = None
    ) -> None:
        """Writes vocab.txt, tokenizer.json and tokenizer_config.json.

        Args:
            settings: further entries of tokenizer_config.json (`model_max_length`).
        """
        directory = files.make_directory(files.local_path(directory))
        lines = (f"{self.id_to_token(i)}\n" for i in range(self.vocab_size))
        files.write_text(directory / "vocab.txt", "".join(lines))
        self._save(directory, _bert_settings(self._backend) | (settings or {}))

    def _continues(self, piece: str) -> bool:
        return piece.startswith("##")


def _learned(
    counts: dict[str, int], vocab_size: int, min_frequency: int, alphabet_size: int
) -> dict[str, int]:
    """Piece -> id, learned by joining the most frequent pairs of pieces.

    The library numbers `##` characters in the order of a hash map and settles equal
    counts by number, so no two runs agree (huggingface/tokenizers#1794). Naming these
    characters beforehand makes the vocabulary a function of the texts.
    """
    alphabet = frequent_characters(counts, alphabet_size)
    counts = {
        word: count
        for word, count in counts.items()
        if len(word) <= MAX_CHARACTERS_PER_WORD and alphabet.issuperset(word)
    }
    inside = sorted({f"##{character}" for word in counts for character in word[1:]})
    learner = tokenizers.Tokenizer(models.WordPiece(unk_token=BERT.unk))
    learner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = WordPieceTrainer(
        vocab_size=vocab_size,
        min_frequency=min_frequency,
        special_tokens=[*BERT.names.values(), *inside],
        show_progress=False,
    )
    learner.train_from_iterator(repeated(counts), trainer)
    return learner.get_vocab()


def _backend(
    vocabulary: dict[str, int],
    specials: SpecialTokens,
    lowercase: bool,
    strip_accents: bool,
    split_cjk: bool,
) -> tokenizers.Tokenizer:
    """Google's pipeline, from text to a row with its special tokens."""
    backend = tokenizers.Tokenizer(
        models.WordPiece(
            vocabulary,
            unk_token=specials.unk,
            max_input_chars_per_word=MAX_CHARACTERS_PER_WORD,
        )
    )
    backend.normalizer = _normalizer(lowercase, strip_accents, split_cjk)
    backend.pre_tokenizer = _pre_tokenizer(split_cjk)
    backend.decoder = decoders.WordPiece()
    backend.add_special_tokens(list(specials.names.values()))
    cls, sep = specials.cls, specials.sep
    backend.post_processor = TemplateProcessing(
        single=f"{cls} $A {sep}",
        pair=f"{cls} $A {sep} $B:1 {sep}:1",
        special_tokens=[(cls, vocabulary[cls]), (sep, vocabulary[sep])],
    )
    return backend


def _normalizer(lowercase: bool, strip_accents: bool, split_cjk: bool):
    steps: list[normalizers.Normalizer] = [normalizers.Replace(Regex(_DROPPED), "")]
    if lowercase:
        steps.append(normalizers.Replace(Regex(_FINAL_SIGMA), "ς"))
    steps.append(
        normalizers.BertNormalizer(
            clean_text=False,
            handle_chinese_chars=split_cjk,
            strip_accents=strip_accents,
            lowercase=lowercase,
        )
    )
    if strip_accents:
        steps.append(normalizers.Replace(Regex(_MARKS), ""))
    return normalizers.Sequence(steps)


def _bert_settings(backend: tokenizers.Tokenizer) -> dict:
    """The settings of a BertNormalizer under their names in tokenizer_config.json."""
    normalizer = json.loads(backend.to_str())["normalizer"] or {}
    for step in normalizer.get("normalizers", [normalizer]):
        if step.get("type") == "BertNormalizer":
            return {
                "do_lower_case": step["lowercase"],
                "strip_accents": step["strip_accents"],
                "tokenize_chinese_chars": step["handle_chinese_chars"],
            }
    return {}


def _pre_tokenizer(split_cjk: bool):
    alone = f"{_PUNCTUATION}|{_CJK_EXTENSION_E}" if split_cjk else _PUNCTUATION
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(alone), "isolated"),
            pre_tokenizers.BertPreTokenizer(),
        ]
    )
