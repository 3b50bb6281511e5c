"""The layers of heads, between an encoder's output and the scores.

The functions add layers to the module that calls them, `head`, and read its fields.
"""

from collections.abc import Callable
from typing import ClassVar

import jax
import jax.numpy as jnp
from flax import linen as nn

from bert_jax.models import layers, ops
from bert_jax.models.config import EncoderConfig


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
    """Scores of a row by `POOLINGS` and two dense layers."""
    c = head.encoder.config
    if head.pooling not in POOLINGS:
        raise ValueError(
            f"pooling={head.pooling!r} is unknown; choose one of {', '.join(POOLINGS)}"
        )
    x = POOLINGS[head.pooling](x, mask)
    dropout = layers.Dropout(rate_or(c, head.rate))
    if head.drops_input:
        x = dropout(x, deterministic)
    x = add_dense(head, c, x, head.hidden_act, "pooler").astype(jnp.float32)
    classifier = layers.Dense(features, c.initializer_range, name="classifier")
    return classifier(dropout(x, deterministic))


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


def _mean(x, mask):
    """The mean over a row's tokens: `[B, L, D] -> float32 [B, D]`."""
    real = jnp.ones(x.shape[:2], bool) if mask is None else mask > 0
    total = jnp.where(real[..., None], x.astype(jnp.float32), 0).sum(1)
    return total / jnp.maximum(real.sum(1, keepdims=True), 1)


# The ways to make one vector of a row, by their names in a published config.
POOLINGS: dict[str, Callable[[jax.Array, jax.Array | None], jax.Array]] = {
    "cls": lambda x, mask: x[:, 0],
    "first": lambda x, mask: x[:, 0],
    "last": lambda x, mask: x[:, -1],
    "cls_index": lambda x, mask: x[:, -1],
    "mean": _mean,
}


def rate_or(config: EncoderConfig, rate: float | None) -> float:
    """`rate`, or the encoder's where it is None."""
    return config.hidden_dropout_prob if rate is None else rate
