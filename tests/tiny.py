"""A tiny model, for the tests of inference and of fine-tuning."""

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax import tokenizers
from bert_jax.inference.model import Model
from bert_jax.models import Bert, BertConfig, Features, MultipleChoice

# Here, for some tests take jax.jit away, and modules use it when they are imported.
from bert_jax.training import runs  # noqa: F401

LETTERS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *map(chr, range(97, 123))]

TINY = BertConfig(
    vocab_size=len(LETTERS),
    hidden_size=12,
    num_hidden_layers=1,
    num_attention_heads=3,
    intermediate_size=20,
    max_position_embeddings=20,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    initializer_range=0.2,
)


def wordpiece(folder, words):
    """A tokenizer of these words, with its vocab.txt in `folder`."""
    path = folder / "vocab.txt"
    path.write_text("\n".join(words))
    return tokenizers.WordPiece.from_vocab(path)


def made(head, tokenizer=None, labels=(), seed=0):
    """A model with random parameters, drawn without compiling its `init`."""
    ids = np.zeros((1, 2, 2) if isinstance(head, MultipleChoice) else (1, 2), int)
    shapes = jax.eval_shape(head.init, jax.random.key(seed), ids)["params"]
    draw = np.random.default_rng(seed)

    def leaf(path, shape):
        if path[-1].key == "scale":
            return jnp.ones(shape.shape, shape.dtype)
        if path[-1].key == "bias":
            return jnp.zeros(shape.shape, shape.dtype)
        return jnp.asarray(draw.normal(0, TINY.initializer_range, shape.shape), "f4")

    params = jax.tree_util.tree_map_with_path(leaf, shapes)
    return Model.of(head, params, tokenizer, labels)


def published(folder):
    """The directory of a tiny encoder with its tokenizer."""
    tokenizer = wordpiece(folder, LETTERS)
    made(Features(Bert(TINY), has_pooler=True), tokenizer).save(folder / "model")
    return folder / "model"


def written(path, count, seed, label=lambda text: "yes" if "q" in text else "no"):
    """Texts of letters, with or without a q."""
    draw = np.random.default_rng(seed)
    rows = []
    for i in range(count):
        letters = list(draw.choice(list("abcdefgh"), draw.integers(1, 12)))
        if i % 2:
            letters[draw.integers(len(letters))] = "q"
        text = " ".join(letters)
        rows.append(f"{text}\t{label(text)}\n")
    path.write_text("".join(rows))
    return path
