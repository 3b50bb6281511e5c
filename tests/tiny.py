"""A tiny model by hand, for the tests of verbs and of fine-tuning."""

import jax
import numpy as np

from bert_jax import tokenizers
from bert_jax.predict import Model

LETTERS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *map(chr, range(97, 123))]


def wordpiece(folder, words):
    """A tokenizer of these words, whose vocab.txt lies in `folder`."""
    path = folder / "vocab.txt"
    path.write_text("\n".join(words))
    return tokenizers.WordPiece.from_vocab(path)


def made(head, tokenizer=None, labels=(), seed=0):
    """A model with parameters as they are drawn."""
    ids = np.zeros((1, 2), np.int32)
    params = head.init(jax.random.key(seed), ids)["params"]
    return Model.of(head, params, tokenizer, labels)
