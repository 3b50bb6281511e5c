"""Text <-> ids: WordPiece, byte-level BPE, SentencePiece, and their training.

The `tokenizers` library starts threads of its own; set `TOKENIZERS_PARALLELISM=false`
in the environment of programs that fork afterwards, or start workers by spawning.
"""

from bert_jax.tokenizers.base import Tokenizer
from bert_jax.tokenizers.bpe import ByteLevelBPE
from bert_jax.tokenizers.kinds import KINDS, check, load, train
from bert_jax.tokenizers.unigram import SentencePiece
from bert_jax.tokenizers.vocabulary import SpecialTokens, check_vocab_size
from bert_jax.tokenizers.wordpiece import WordPiece

__all__ = [
    "KINDS",
    "ByteLevelBPE",
    "SentencePiece",
    "SpecialTokens",
    "Tokenizer",
    "WordPiece",
    "check",
    "check_vocab_size",
    "load",
    "train",
]
