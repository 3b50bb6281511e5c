"""XLNet (Yang et al., 2019): relative positions, two streams of attention, memory."""

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import linen as nn

from bert_jax.models import layers, ops, relative_attention
from bert_jax.models.config import DTYPES, EncoderConfig


@dataclasses.dataclass(unsafe_hash=True)
class XLNetConfig(EncoderConfig):
    """Field names are those of a published `config.json`; defaults are XLNet-large.

    Attributes:
      attn_type: "bi", or "uni", which lets no token see later ones (Transformer-XL).
      same_length: True lets every token see the same number of earlier ones ("uni").
      clamp_len: larger distances count as this one; below 1 there is no limit.
      mem_len: tokens that `next_memory` keeps; None keeps all.
      reuse_len: tokens of the last row that it may keep, from its start; None: all.
      max_position_embeddings: the length at which tasks cut a row, that of the
        published models; no table of positions limits it.
      dtype, remat: see `BertConfig`.
      attention: "auto" or "plain": no kernel computes relative positions.

    >>> XLNetConfig(d_model=768).hidden_size  # by the name that all encoders share
    768
    """

    vocab_size: int = 32000
    d_model: int = 1024
    n_layer: int = 24
    n_head: int = 16
    d_inner: int = 4096
    ff_activation: str = "gelu"
    attn_type: str = "bi"
    same_length: bool = False
    clamp_len: int = -1
    mem_len: int | None = None
    reuse_len: int | None = None
    dropout: float = 0.1
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12
    pad_token_id: int = 5
    tie_word_embeddings: bool = True
    max_position_embeddings: int = 512
    model_type: str = "xlnet"
    dtype: str = "float32"
    remat: bool = False
    attention: str = "auto"

    @property
    def hidden_size(self) -> int:
        """`d_model`."""
        return self.d_model

    @property
    def num_hidden_layers(self) -> int:
        """`n_layer`."""
        return self.n_layer

    @property
    def num_attention_heads(self) -> int:
        """`n_head`."""
        return self.n_head

    @property
    def intermediate_size(self) -> int:
        """`d_inner`."""
        return self.d_inner

    @property
    def hidden_act(self) -> str:
        """`ff_activation`."""
        return self.ff_activation

    @property
    def hidden_dropout_prob(self) -> float:
        """`dropout`."""
        return self.dropout

    @property
    def attention_probs_dropout_prob(self) -> float:
        """`dropout`, which falls on attention weights too."""
        return self.dropout

    def validate(self) -> None:
        """Raises ValueError with the field, its value and the remedy."""
        sizes = "vocab_size", "d_model", "n_layer", "n_head", "d_inner"
        self.check_sizes(*sizes, "max_position_embeddings")
        if self.d_model % self.n_head or self.d_model % 2:
            raise ValueError(
                f"d_model={self.d_model} is not an even multiple of "
                f"n_head={self.n_head}; change one of them"
            )
        self.check_choice("ff_activation", layers.ACTIVATIONS)
        self.check_choice("attn_type", ("bi", "uni"))
        self.check_choice("dtype", DTYPES)
        self.check_choice("attention", ("auto", "plain"))
        self.check_rates("dropout")
        lengths = [x for x in ("mem_len", "reuse_len") if getattr(self, x)]
        self.check_sizes(*lengths)

    def truncated(self) -> "XLNetConfig":
        """This config with one layer, which all others are like."""
        return dataclasses.replace(self, n_layer=1)

    def for_device(
        self, platform: str, capability: float, length: int, sequences: int
    ) -> "XLNetConfig":
        """This config with plain attention: no kernel computes relative positions."""
        return dataclasses.replace(self, attention="plain")

    def build(self) -> "XLNet":
        """The encoder this config describes."""
        self.validate()
        return XLNet(self)


class Mlp(nn.Module):
    """`layers.Mlp` with dropout between its two layers: `[..., D] -> [..., D]`."""

    config: XLNetConfig

    @nn.compact
    def __call__(self, x: jax.Array, deterministic: bool) -> jax.Array:
        c = self.config
        up = layers.Dense(c.d_inner, c.initializer_range, c.dtype, name="up")
        down = layers.Dense(c.d_model, c.initializer_range, c.dtype, name="down")
        y = layers.ACTIVATIONS[c.ff_activation](up(x))
        return down(layers.Dropout(c.dropout)(y, deterministic))


class Block(nn.Module):
    """Attention, then MLP, each added to its input and normalised, for each stream."""

    config: XLNetConfig

    def setup(self):
        c = self.config
        self.attention = relative_attention.RelativeAttention(
            c.n_head, c.d_model, c.dropout, c.initializer_range, c.dtype
        )
        self.attention_norm = layers.LayerNorm(c.layer_norm_eps, c.dtype)
        self.mlp = Mlp(c)
        self.mlp_norm = layers.LayerNorm(c.layer_norm_eps, c.dtype)
        self.dropout = layers.Dropout(c.dropout)

    def __call__(
        self,
        streams: Sequence[jax.Array],
        memory: jax.Array | None,
        table: jax.Array,
        seen: Sequence[relative_attention.Seen],
        *,
        deterministic: bool = True,
    ) -> tuple[jax.Array, ...]:
        """Streams `[B, L, D]`, the content first: all attend to it and its memory."""
        x = streams[0]
        if memory is not None:
            x = jnp.concatenate([memory.astype(x.dtype), x], axis=1)
        keys = self.attention.keys(x, table)
        both = zip(streams, seen, strict=True)
        return tuple(self._stream(*one, keys, deterministic) for one in both)

    def _stream(self, x, seen, keys, deterministic):
        y = self.attention(x, keys, seen, deterministic=deterministic)
        x = self.attention_norm(x + self.dropout(y, deterministic))
        y = self.mlp(x, deterministic)
        return self.mlp_norm(x + self.dropout(y, deterministic))


class Embeddings(nn.Module):
    """The table of words `[V, D]`, and the first vector `[1, 1, D]` of all queries."""

    config: XLNetConfig

    def setup(self):
        c = self.config
        init = layers.kernel_init(c.initializer_range)
        self.word = self.param("word", init, (c.vocab_size, c.d_model))
        self.mask = self.param("mask", init, (1, 1, c.d_model))

    def __call__(self, input_ids: jax.Array) -> jax.Array:
        return ops.lookup(jnp.asarray(self.word, self.config.dtype), input_ids)

    def queries(self, positions: jax.Array) -> jax.Array:
        """The first vectors of queries at `positions` `[B, P]`: `[B, P, D]`."""
        shape = (*positions.shape, self.config.d_model)
        return jnp.broadcast_to(self.mask.astype(self.config.dtype), shape)

    def attend(self, x: jax.Array) -> jax.Array:
        """`[..., D] -> [..., V]`: the product with the transposed word embedding."""
        return ops.matmul(x, self.word.T, self.config.dtype)


class XLNet(nn.Module):
    """Token ids to vectors: `[B, L] -> [B, L, D]`.

    Parameters: `embeddings/{word,mask}`, `layer_<i>/attention/{query,key,value,
    distance,out}/kernel`, `layer_<i>/attention/{content,distance,segment}_bias`,
    `layer_<i>/attention/segment`, `layer_<i>/attention_norm`, `layer_<i>/mlp/{up,
    down}`, `layer_<i>/mlp_norm`.

    >>> xlnet = XLNetConfig(31, 12, n_layer=2, n_head=3, d_inner=20).build()
    >>> memory = [jnp.zeros((2, 4, 12))] * 2  # [B, M, D] a layer
    >>> jax.eval_shape(xlnet.init_with_output, key, ids, memory=memory)[0].shape
    (2, 7, 12)
    """

    config: XLNetConfig

    def setup(self):
        c = self.config
        self.embeddings = Embeddings(c)
        self.layer = [Block(c) for _ in range(c.n_layer)]
        self.dropout = layers.Dropout(c.dropout)

    def __call__(
        self,
        input_ids: jax.Array,
        attention_mask: jax.Array | None = None,
        token_type_ids: jax.Array | None = None,
        position_ids: jax.Array | None = None,
        *,
        perm_mask: jax.Array | None = None,
        memory: Sequence[jax.Array] | None = None,
        deterministic: bool = True,
    ) -> jax.Array:
        """Encodes a batch: the content stream.

        Args:
          input_ids, attention_mask: `[B, L]`, see `Bert`.
          token_type_ids: `[B, L]`, the segments of tokens; those of `memory` are in
            segment 0.
          position_ids: not used: distances are those in the row, where the tokens of a
            packed sequence are neighbours.
          perm_mask: `[B, L, L]`: not 0 where token i does not see token j; every token
            sees itself.
          memory: `[B, M, D]` for each layer, which every token sees, see `next_memory`.
          deterministic: False draws dropout from the rng named "dropout".

        Returns:
          Hidden states of the last layer, `[B, L, D]` in `config.dtype`. Intermediates
          are those of `Bert`: `hidden_states`, and `attention/weights` `[B, H, L, M +
          L]`, the memory first.
        """
        self.config.check_shape(input_ids)
        x = self.embeddings(input_ids)
        seen = self._seen(x, attention_mask, token_type_ids, perm_mask, memory)
        return self._run((x,), (seen.with_itself(),), memory, deterministic)[0]

    def two_streams(
        self,
        input_ids: jax.Array,
        attention_mask: jax.Array | None = None,
        token_type_ids: jax.Array | None = None,
        position_ids: jax.Array | None = None,
        *,
        positions: jax.Array,
        perm_mask: jax.Array | None = None,
        memory: Sequence[jax.Array] | None = None,
        deterministic: bool = True,
    ) -> tuple[jax.Array, jax.Array]:
        """Encodes a batch, with queries at some positions (section 2.3).

        Args, besides those of a call:
          positions: `[B, P]`. A query there knows its position, and the tokens that
            `perm_mask` lets the token there see; that token only if `perm_mask` does.

        Returns:
          The content stream `[B, L, D]` and the query stream `[B, P, D]`.
        """
        self.config.check_shape(input_ids)
        x = self.embeddings(input_ids)
        seen = self._seen(x, attention_mask, token_type_ids, perm_mask, memory)
        streams = x, self.embeddings.queries(positions)
        views = seen.with_itself(), seen.at(positions)
        return self._run(streams, views, memory, deterministic)

    def attend(self, x: jax.Array) -> jax.Array:
        """`[..., D] -> [..., V]` with the tied word embedding, for language models."""
        return self.embeddings.attend(x)

    def _seen(self, x, attention_mask, token_type_ids, perm_mask, memory):
        B, L, _ = x.shape
        M = 0 if memory is None else memory[0].shape[1]
        if token_type_ids is None:
            token_type_ids = jnp.zeros((B, L), jnp.int32)
        visible = relative_attention.visible((B, L), attention_mask, perm_mask, M)
        if self.config.attn_type == "uni":
            visible &= relative_attention.before(L, M, self.config.same_length)[None]
        return relative_attention.Seen(
            visible, relative_attention.other_segment(token_type_ids, M)
        )

    def _run(self, streams, seen, memory, deterministic):
        c = self.config
        L, M = seen[0].visible.shape[1:]
        far = relative_attention.distances(L, M, c.clamp_len)
        table = jnp.asarray(relative_attention.sinusoids(far, c.d_model), c.dtype)
        table = self.dropout(table, deterministic, of_rows=False)
        streams = tuple(self.dropout(x, deterministic) for x in streams)

        def run(block, streams, memory, table, seen):
            return block(streams, memory, table, seen, deterministic=deterministic)

        run = nn.remat(run) if c.remat else run
        for block, past in zip(self.layer, memory or [None] * c.n_layer, strict=True):
            self.sow("intermediates", "hidden_states", streams[0])
            streams = run(block, streams, past, table, seen)
        self.sow("intermediates", "hidden_states", streams[0])
        return tuple(self.dropout(x, deterministic) for x in streams)


def next_memory(
    config: XLNetConfig,
    hidden_states: Sequence[jax.Array],
    memory: Sequence[jax.Array] | None = None,
) -> tuple[jax.Array, ...]:
    """The memory for the next rows of the same texts: `[B, M, D]` for each layer.

    `hidden_states` are the intermediates of this name, `[B, L, D]` each, and `memory`
    is the memory of the last call. No gradient flows into it (Dai et al., 2019, section
    3.2). `mem_len` and `reuse_len` limit it.

    >>> states = [jnp.zeros((2, 7, 12))] * 3
    >>> [x.shape for x in next_memory(XLNetConfig(n_layer=2, mem_len=5), states)]
    [(2, 5, 12), (2, 5, 12)]
    """
    # A layer attends to the input of layers, so the output of the last one is not used.
    inputs = hidden_states[: config.n_layer]
    states = [x[:, : config.reuse_len or None] for x in inputs]
    if memory is not None:
        pairs = zip(memory, states, strict=True)
        states = [jnp.concatenate(pair, axis=1) for pair in pairs]
    return tuple(jax.lax.stop_gradient(x[:, -(config.mem_len or 0) :]) for x in states)
