"""Models in use: `Model`, its methods and their results, one file a method."""

from bert_jax.inference.attention import Attention
from bert_jax.inference.choose import Choice
from bert_jax.inference.classify import Label
from bert_jax.inference.embed_tokens import maxsim
from bert_jax.inference.fill_mask import Guess
from bert_jax.inference.index import Index
from bert_jax.inference.jitted import use_compilation_cache
from bert_jax.inference.model import Model, load
from bert_jax.inference.rank import Ranked
from bert_jax.inference.search import Hit
from bert_jax.inference.span_decoding import Span
from bert_jax.inference.tag import NamedEntity, Tag
from bert_jax.inference.word_alignment import Words
from bert_jax.inference.word_map import WordMap

__all__ = [
    "Attention",
    "Choice",
    "Guess",
    "Hit",
    "Index",
    "Label",
    "Model",
    "NamedEntity",
    "Ranked",
    "Span",
    "Tag",
    "WordMap",
    "Words",
    "load",
    "maxsim",
    "use_compilation_cache",
]
