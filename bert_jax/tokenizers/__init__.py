"""Text <-> ids: WordPiece, and the training of its vocabulary."""

from bert_jax.tokenizers.special import SpecialTokens
from bert_jax.tokenizers.wordpiece import WordPiece

__all__ = ["SpecialTokens", "WordPiece"]
