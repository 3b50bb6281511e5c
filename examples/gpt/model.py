"""GPT (Radford et al., 2018) and GPT-2 (Radford et al., 2019), by one config.

A block of GPT adds each branch and then normalises, that of GPT-2 normalises the input
of each branch and has one more norm at the end:

    GPT    x = norm(x + attention(x));   x = norm(x + mlp(x))
    GPT-2  x = x + attention(norm(x));   x = x + mlp(norm(x));   norm(x) after the last

Attention is causal, and the scores of the next token are the products with the word
embeddings.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from bert_jax.models import TransformerConfig, layers, masks, ops


@dataclasses.dataclass(unsafe_hash=True)
class GPTConfig(TransformerConfig):
    """Defaults are those of the smallest GPT-2; `pre_norm=False` makes a GPT.

    >>> GPTConfig(num_attention_heads=5).build()
    Traceback (most recent call last):
    ValueError: hidden_size=768 is not a multiple of num_attention_heads=5; ...
    """

    vocab_size: int = 50257
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu_new"
    attention_probs_dropout_prob: float = 0.1
    max_position_embeddings: int = 1024
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-5
    model_type: str = "gpt"
    pre_norm: bool = True

    @property
    def out_stddev(self) -> float:
        """Of the last kernel of a branch (Radford et al., 2019, section 2.3)."""
        branches = 2 * self.num_hidden_layers if self.pre_norm else 1
        return self.initializer_range / branches**0.5

    def build(self) -> "GPT":
        """The module."""
        self.validate()
        return GPT(self)


class Embeddings(nn.Module):
    """Words and learnt positions: `[B, L] -> [B, L, D]`."""

    config: GPTConfig

    def setup(self):
        c = self.config
        init = layers.kernel_init(c.initializer_range)
        self.word = self.param("word", init, (c.vocab_size, c.hidden_size))
        positions = (c.max_position_embeddings, c.hidden_size)
        self.position = self.param("position", init, positions)
        self.dropout = layers.Dropout(c.hidden_dropout_prob)

    def __call__(self, input_ids, position_ids, *, deterministic=True):
        tables = (self.word, input_ids), (self.position, position_ids)
        x, position = (
            ops.lookup(jnp.asarray(table, self.config.dtype), ids)
            for table, ids in tables
        )
        return self.dropout(x + position, deterministic)


class Block(nn.Module):
    """Attention, then an MLP, each added to its input."""

    config: GPTConfig

    @nn.compact
    def __call__(self, x, mask, start, *, deterministic=True):
        c = self.config

        def store(*new):
            """The cached keys and values with the new ones, from place `start` on."""
            if not self.has_variable("cache", "key"):
                return new
            for name, x in zip(("key", "value"), new, strict=True):
                old = self.get_variable("cache", name)
                old = jax.lax.dynamic_update_slice_in_dim(old, x, start, axis=1)
                self.put_variable("cache", name, old)
            return self.get_variable("cache", "key"), self.get_variable(
                "cache", "value"
            )

        def added(name, x, branch):
            norm = layers.LayerNorm(c.layer_norm_eps, c.dtype, name=f"{name}_norm")
            y = branch(norm(x) if c.pre_norm else x)
            x += layers.Dropout(c.hidden_dropout_prob)(y, deterministic)
            return x if c.pre_norm else norm(x)

        attention = layers.Attention(
            c.num_attention_heads,
            c.attention_probs_dropout_prob,
            c.initializer_range,
            c.dtype,
            c.attention,
            out_stddev=c.out_stddev,
            name="attention",
        )
        mlp = layers.Mlp(
            c.intermediate_size,
            layers.ACTIVATIONS[c.hidden_act],
            c.initializer_range,
            c.dtype,
            c.out_stddev,
            name="mlp",
        )

        def attend(x):
            return attention(x, mask, store=store, deterministic=deterministic)

        return added("mlp", added("attention", x, attend), mlp)


class GPT(nn.Module):
    """Token ids to vectors, `[B, L] -> [B, L, D]`; called like any encoder.

    Parameters: `embeddings/{word,position}`, `layer_<i>` as in `Bert`, and with
    `pre_norm` a `final_norm`. The variables of `empty_cache` make it read ids that go
    on where the last ones ended.
    """

    config: GPTConfig

    def setup(self):
        c = self.config
        self.embeddings = Embeddings(c)
        self.layer = [Block(c) for _ in range(c.num_hidden_layers)]
        if c.pre_norm:
            self.final_norm = layers.LayerNorm(c.layer_norm_eps, c.dtype)

    def __call__(
        self,
        input_ids: jax.Array,
        attention_mask: jax.Array | None = None,
        token_type_ids: jax.Array | None = None,
        position_ids: jax.Array | None = None,
        *,
        deterministic: bool = True,
    ) -> jax.Array:
        """Encodes a batch; see `Bert`. Token types are ignored.

        With a cache, masks and positions are ignored too: rows have no padding. Raises
        ValueError for rows longer than the config's positions.
        """
        c, (B, L) = self.config, input_ids.shape
        c.check_length(L)
        start = jnp.zeros((), jnp.int32)
        if self.has_variable("cache", "length"):
            start = self.get_variable("cache", "length")
            self.put_variable("cache", "length", start + L)
            position_ids = start + jnp.arange(L)[None]
            seen = jnp.arange(c.max_length)[None, None] <= position_ids[:, :, None]
            mask = masks.Mask(seen.astype(jnp.int32).repeat(B, 0))
        else:
            if attention_mask is None:
                attention_mask = jnp.ones_like(input_ids)
            if position_ids is None:
                position_ids = jnp.arange(L)[None]
            mask = masks.Mask(attention_mask, positions=position_ids, causal=True)
        x = self.embeddings(input_ids, position_ids, deterministic=deterministic)

        def run(block, x, mask, start):
            return block(x, mask, start, deterministic=deterministic)

        run = nn.remat(run) if c.remat else run
        for block in self.layer:
            x = run(block, x, mask, start)
        return self.final_norm(x) if c.pre_norm else x

    def attend(self, x: jax.Array) -> jax.Array:
        """`[..., D] -> [..., V]`: the product with the transposed word embedding."""
        return ops.matmul(x, self.embeddings.word.T, self.config.dtype)

    def logits(self, *inputs: Any, deterministic: bool = True) -> jax.Array:
        """float32 scores `[B, L, V]` of the token after each."""
        x = self(*inputs, deterministic=deterministic)
        return self.attend(x).astype(jnp.float32)


def empty_cache(config: GPTConfig, batch: int) -> dict[str, Any]:
    """The "cache" variables of `batch` empty rows: a length, and keys and values.

    >>> config = GPTConfig(31, 12, 1, 3, 20, max_position_embeddings=16)
    >>> cache = empty_cache(config, 2)
    >>> cache["layer_0"]["key"].shape  # [B, M, H, K]
    (2, 16, 3, 4)
    """
    heads = config.num_attention_heads
    shape = (batch, config.max_length, heads, config.hidden_size // heads)
    empty = {name: jnp.zeros(shape, config.dtype) for name in ("key", "value")}
    layers = {f"layer_{i}": dict(empty) for i in range(config.num_hidden_layers)}
    return {"length": jnp.zeros((), jnp.int32), **layers}
