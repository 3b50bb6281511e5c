"""The layers of heads, between an encoder's output and the scores.

The functions add layers to the module that calls them, `head`, and read its fields.
"""

from typing import ClassVar

import jax
import jax.numpy as jnp
from flax import linen as nn

from bert_jax.models import layers, ops
from bert_jax.models.config import EncoderConfig
from bert_jax.models.pooling import MODES, pool


class MaskedLMHead(nn.Module):
    """`[..., D] -> float32 [..., V]`: dense, activation, norm, tied embedding, bias."""

    config: EncoderConfig
    hidden_act: str | None = None  # None: the encoder's
    use_bias: bool = True
    decoder_bias: bool = True
    has_norm: ClassVar[bool] = True

    @nn.compact
    def __call__(self, x: jax.Array, decode) -> jax.Array:
        c, act = self.config, self.hidden_act or self.config.hidden_act
        x = add_dense(self, c, x, act, "transform", c.embedding_size)
        return score_words(self, c, x, decode)


class LMHead(nn.Module):
    """`[..., D] -> float32 [..., V]`: tied embedding, bias."""

    config: EncoderConfig
    decoder_bias: ClassVar[bool] = True

    @nn.compact
    def __call__(self, x: jax.Array, decode) -> jax.Array:
        return score_words(self, self.config, x, decode)


def score_words(head, config, x, decode):
    """Scores of every word, by the tied embedding or a table of the head."""
    c = config
    if not c.tie_word_embeddings:
        sizes = c.vocab_size, c.initializer_range, c.dtype, head.decoder_bias
        return layers.Dense(*sizes, name="decoder")(x).astype(jnp.float32)
    logits = decode(x).astype(jnp.float32)
    if not head.decoder_bias:
        return logits
    bias = head.param("bias", nn.initializers.zeros, (c.vocab_size,))
    return logits + ops.broadcast_row(bias, logits.ndim, "float32")


def score_row(head, x, mask, features, deterministic):
    """Scores of a row from its pooled vector.

    Without a `hidden_act`, one dense layer reads this vector; with it, there are two,
    as in published models.
    """
    c = head.encoder.config
    x = pool_row(x, mask, head.pooling)
    dropout = layers.Dropout(rate_or(c, head.rate))
    if head.hidden_act is not None:
        if head.drops_input:
            x = dropout(x, deterministic)
        x = add_dense(head, c, x, head.hidden_act, "pooler")
    x = dropout(x.astype(jnp.float32), deterministic)
    return layers.Dense(features, c.initializer_range, name="classifier")(x)


def pool_row(x: jax.Array, mask: jax.Array | None, pooling: str) -> jax.Array:
    """`[B, L, D]` and mask `[B, L]` -> `[B, D]`; several modes are joined by +.

    Raises ValueError for unknown pooling.
    """
    if pooling in POSITIONS:
        return x[:, POSITIONS[pooling]]
    modes = pooling.split("+")
    if not set(modes) <= MODES.keys():
        known = ", ".join(dict.fromkeys([*MODES, *POSITIONS]))
        raise ValueError(f"pooling={pooling!r} is unknown; choose one of {known}")
    return pool(x, mask, modes)


def score_each(head, name, x, features, deterministic):
    """Scores of every token by one dense layer or two."""
    c = head.encoder.config
    if head.hidden_act is not None:
        x = add_dense(head, c, x, head.hidden_act, "transform")
    x = layers.Dropout(rate_or(c, head.rate))(x.astype(jnp.float32), deterministic)
    return layers.Dense(features, c.initializer_range, name=name)(x)


def add_dense(head, config, x, hidden_act, name, width=None):
    """A dense layer, its activation and, if the head has one, its norm."""
    c = config
    sizes = width or c.hidden_size, c.initializer_range, c.dtype, head.use_bias
    x = layers.ACTIVATIONS[hidden_act](layers.Dense(*sizes, name=name)(x))
    if not head.has_norm:
        return x
    return layers.LayerNorm(c.layer_norm_eps, c.dtype, c.norm_bias, name="norm")(x)


# Poolings that published configs name by the position of the token they read.
POSITIONS = {"cls": 0, "first": 0, "last": -1, "cls_index": -1}


def rate_or(config: EncoderConfig, rate: float | None) -> float:
    """`rate`, or the encoder's where it is None."""
    return config.hidden_dropout_prob if rate is None else rate
