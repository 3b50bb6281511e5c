"""Heads: what is put on an encoder, which each receives as a field."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from bert_jax.models import layers


class MaskedLMHead(nn.Module):
    """`[..., D] -> float32 [..., V]`: dense, activation, norm, tied embedding, bias."""

    config: Any  # the encoder's

    @nn.compact
    def __call__(self, x: jax.Array, decode) -> jax.Array:
        c = self.config
        width = c.embedding_size or c.hidden_size
        x = layers.Dense(width, c.initializer_range, c.dtype, name="transform")(x)
        x = layers.ACTIVATIONS[c.hidden_act](x)
        x = layers.LayerNorm(c.layer_norm_eps, c.dtype, name="norm")(x)
        bias = self.param("bias", nn.initializers.zeros, (c.vocab_size,))
        logits = decode(x).astype(jnp.float32)
        return logits + layers.row(bias, logits.ndim, "float32")


def gather(x: jax.Array, positions: jax.Array) -> jax.Array:
    """`[B, L, D]` at `[B, P]` -> `[B, P, D]`."""
    return jnp.take_along_axis(x, positions[..., None], axis=1)


class Pretraining(nn.Module):
    """Masked LM and a two-way question about each sentence pair (NSP or SOP)."""

    encoder: nn.Module

    def setup(self):
        c = self.encoder.config
        self.mlm = MaskedLMHead(c)
        self.pooler = layers.Dense(c.hidden_size, c.initializer_range, c.dtype)
        self.pair = layers.Dense(2, c.initializer_range)

    def __call__(
        self,
        input_ids: jax.Array,
        attention_mask: jax.Array | None = None,
        token_type_ids: jax.Array | None = None,
        position_ids: jax.Array | None = None,
        *,
        positions: jax.Array | None = None,
        cls_positions: jax.Array | None = None,
        deterministic: bool = True,
    ) -> tuple[jax.Array, jax.Array]:
        """Scores masked tokens and pairs.

        Args:
          input_ids, attention_mask, token_type_ids, position_ids: `[B, L]`, see `Bert`.
          positions: `[B, P]`, where to predict; gathered before the product with the
            vocabulary. None predicts everywhere (P = L).
          cls_positions: `[B, S]`, the [CLS] of each packed sequence; None reads the
            first token of the row.
          deterministic: False draws dropout from the rng named "dropout".

        Returns:
          float32 logits `[B, P, V]` of the tokens and `[B, S, 2]` of the pairs
          (`[B, 2]` without `cls_positions`); label 0 is "in order".
        """
        x = self.encoder(
            input_ids,
            attention_mask,
            token_type_ids,
            position_ids,
            deterministic=deterministic,
        )
        first = x[:, 0] if cls_positions is None else gather(x, cls_positions)
        tokens = x if positions is None else gather(x, positions)
        pairs = self.pair(jnp.tanh(self.pooler(first)).astype(jnp.float32))
        return self.mlm(tokens, self.encoder.attend), pairs
