"""The kinds of vocabulary that can be learned, by name."""

from collections.abc import Iterable

from bert_jax.tokenizers.base import Tokenizer
from bert_jax.tokenizers.bytelevel import ByteLevelBPE
from bert_jax.tokenizers.sentence_piece import SentencePiece
from bert_jax.tokenizers.special import XLNET
from bert_jax.tokenizers.wordpiece import WordPiece

KINDS = {
    "wordpiece": WordPiece,
    "byte_level_bpe": ByteLevelBPE,
    "sentencepiece": SentencePiece,
    "xlnet": SentencePiece,
}


def check(kind: str, lowercase: bool) -> None:
    """Raises ValueError for a kind that is not known, or that has no lower case.

    >>> check("bpe", lowercase=False)
    Traceback (most recent call last):
    ValueError: vocabulary='bpe' is unknown; choose one of wordpiece, ...
    """
    if kind not in KINDS:
        raise ValueError(
            f"vocabulary={kind!r} is unknown; choose one of {', '.join(KINDS)}"
        )
    if lowercase and KINDS[kind] is ByteLevelBPE:
        raise ValueError(
            "vocabulary='byte_level_bpe' keeps capitals, as RoBERTa's; set lowercase "
            "to false (`bert-jax prepare --cased`)"
        )


def train(
    kind: str, texts: Iterable[str], vocab_size: int, lowercase: bool
) -> Tokenizer:
    """Learns a vocabulary of a kind from a stream of texts, which is read once.

    Text is cut into sentences before its words are, so byte-level BPE reads a space
    before the first word of each: otherwise a word would have other pieces there.

    Args:
      kind: one of `KINDS`.
      vocab_size: pieces, special tokens included.
      lowercase: whether letters are lowered.

    Raises:
      ValueError: see `check`; and where the texts support no such vocabulary.

    >>> learnt = train("wordpiece", ["low lower"] * 9, vocab_size=16, lowercase=True)
    >>> type(learnt).__name__, learnt.vocab_size
    ('WordPiece', 16)
    """
    check(kind, lowercase)
    if KINDS[kind] is ByteLevelBPE:
        return ByteLevelBPE.train(texts, vocab_size, add_prefix_space=True)
    if kind == "xlnet":
        return SentencePiece.train(texts, vocab_size, lowercase, XLNET)
    return KINDS[kind].train(texts, vocab_size, lowercase)
