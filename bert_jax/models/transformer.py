"""The original Transformer (Vaswani et al., 2017), and either of its stacks alone.

A block attends to its own row, then to another row if there is one, then applies an
MLP; each is added to its input and normalised (post-norm). A `Stack` of blocks in which
a token attends to its whole row is an encoder, like BERT; with `causal`, where a token
attends to the tokens before it, a language model, like GPT. Two stacks translate.
"""

import dataclasses

import jax
import jax.numpy as jnp
from flax import linen as nn

from bert_jax.models import layers, masks, ops
from bert_jax.models.config import EncoderConfig


@dataclasses.dataclass(unsafe_hash=True)
class TransformerConfig(EncoderConfig):
    """Field names are BERT's; defaults are those of the paper's base model (table 3).

    Each stack has `num_hidden_layers`. For `dtype`, `remat` and `attention` see
    `BertConfig`.

    >>> TransformerConfig(num_hidden_layers=0).build()
    Traceback (most recent call last):
    ValueError: num_hidden_layers=0; it must be at least 1
    """

    vocab_size: int = 37000
    hidden_size: int = 512
    num_hidden_layers: int = 6
    num_attention_heads: int = 8
    intermediate_size: int = 2048
    hidden_act: str = "relu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.0
    max_position_embeddings: int = 512
    initializer_range: float = 0.04
    layer_norm_eps: float = 1e-6
    pad_token_id: int = 0
    model_type: str = "transformer"
    dtype: str = "float32"
    remat: bool = False
    attention: str = "auto"

    @property
    def tie_word_embeddings(self) -> bool:
        """True: both stacks and the scores share one table."""
        return True

    def validate(self) -> None:
        """Raises ValueError with the field, its value and the remedy."""
        self.check_common("hidden_act")
        self.check_rates("hidden_dropout_prob", "attention_probs_dropout_prob")

    def build(self) -> "Transformer":
        """Both stacks, for translation; see `Stack` for one alone."""
        self.validate()
        return Transformer(self)


class Embeddings(nn.Module):
    """Words and sinusoids: `[B, L] -> [B, L, D]` (sections 3.4 and 3.5)."""

    config: TransformerConfig

    def setup(self):
        c = self.config
        init = nn.initializers.normal(c.hidden_size**-0.5)
        self.word = self.param("word", init, (c.vocab_size, c.hidden_size))
        self.position = layers.sinusoids(c.max_position_embeddings, c.hidden_size)
        self.dropout = layers.Dropout(c.hidden_dropout_prob)

    def __call__(self, input_ids, position_ids, *, deterministic=True):
        x = ops.lookup(jnp.asarray(self.word, self.config.dtype), input_ids)
        position = ops.lookup(jnp.asarray(self.position), position_ids)
        x = x.astype(jnp.float32) + position
        x *= self.config.hidden_size**0.5  # the sinusoids were divided by it
        return self.dropout(x.astype(self.config.dtype), deterministic)

    def attend(self, x: jax.Array) -> jax.Array:
        """`[..., D] -> [..., V]`: the product with the transposed word embedding."""
        return ops.matmul(x, self.word.T, self.config.dtype)


class Block(nn.Module):
    """Attention, attention to `memory` where there is one, then an MLP (post-norm)."""

    config: TransformerConfig

    @nn.compact
    def __call__(self, x, mask, memory, memory_mask, *, deterministic=True):
        c = self.config

        def attend(name, x, mask, memory=None):
            attention = layers.Attention(
                c.num_attention_heads,
                c.attention_probs_dropout_prob,
                c.initializer_range,
                c.dtype,
                c.attention,
                name=name,
            )
            return attention(x, mask, memory=memory, deterministic=deterministic)

        def added(name, x, y):
            y = layers.Dropout(c.hidden_dropout_prob)(y, deterministic)
            return layers.LayerNorm(c.layer_norm_eps, c.dtype, name=name)(x + y)

        x = added("attention_norm", x, attend("attention", x, mask))
        if memory is not None:
            y = attend("cross_attention", x, memory_mask, memory)
            x = added("cross_attention_norm", x, y)
        mlp = layers.Mlp(
            c.intermediate_size,
            layers.ACTIVATIONS[c.hidden_act],
            c.initializer_range,
            c.dtype,
            name="mlp",
        )
        return added("mlp_norm", x, mlp(x))


class Stack(nn.Module):
    """Token ids to vectors, `[B, L] -> [B, L, D]`; called like any encoder.

    Attributes:
      config: the config of the blocks.
      causal: True lets no token attend to later ones.
      shared: the embeddings of another stack; None makes its own.

    >>> stack = Stack(TransformerConfig(31, 12, 1, 3, 20), causal=True)
    >>> tree, run = jax.jit(stack.init)(key, ids), jax.jit(stack.apply)
    >>> x, y = run(tree, ids), run(tree, ids.at[:, 5].set(0))
    >>> (x == y).all((0, 2))  # a later token changes nothing
    Array([ True,  True,  True,  True,  True, False, False], dtype=bool)
    """

    config: TransformerConfig
    causal: bool = False
    shared: nn.Module | None = None

    def setup(self):
        if self.shared is None:
            self.embeddings = Embeddings(self.config)
        self.layer = [Block(self.config) for _ in range(self.config.num_hidden_layers)]

    def __call__(
        self,
        input_ids: jax.Array,
        attention_mask: jax.Array | None = None,
        token_type_ids: jax.Array | None = None,
        position_ids: jax.Array | None = None,
        *,
        memory: jax.Array | None = None,
        memory_mask: jax.Array | None = None,
        deterministic: bool = True,
    ) -> jax.Array:
        """Encodes a batch; see `Bert`. Token types are ignored.

        Blocks attend to `memory` `[B, M, D]` too, if there is one: a token to those
        whose value in `memory_mask` `[B, M]` equals its own in `attention_mask`.
        Raises ValueError for rows longer than the config's positions.
        """
        c = self.config
        c.check_shape(input_ids)
        c.check_length(input_ids.shape[1])
        if attention_mask is None:
            attention_mask = jnp.ones_like(input_ids)
        if position_ids is None:
            position_ids = jnp.arange(input_ids.shape[1])[None]
        mask = masks.Mask(attention_mask, positions=position_ids, causal=self.causal)
        cross_mask = masks.Mask(attention_mask, keys=memory_mask)
        embed = self.embeddings if self.shared is None else self.shared
        x = embed(input_ids, position_ids, deterministic=deterministic)

        def run(block, x, mask, memory, cross_mask):
            return block(x, mask, memory, cross_mask, deterministic=deterministic)

        run = nn.remat(run) if c.remat else run
        for block in self.layer:
            self.sow("intermediates", "hidden_states", x)
            x = run(block, x, mask, memory, cross_mask)
        self.sow("intermediates", "hidden_states", x)
        return x

    def attend(self, x: jax.Array) -> jax.Array:
        """`[..., D] -> [..., V]` with the tied word embedding."""
        embed = self.embeddings if self.shared is None else self.shared
        return embed.attend(x)


class Transformer(nn.Module):
    """A text and the beginning of its translation -> the next token.

    `[B, M], [B, L] -> [B, L, V]`. Parameters: `embeddings/word`, which both stacks and
    the scores share (section 3.4), `encoder/layer_<i>` and `decoder/layer_<i>` as in
    `Bert`; those of the decoder also have `cross_attention` and `cross_attention_norm`.

    >>> model = TransformerConfig(31, 12, 1, 3, 20).build()
    >>> logits, tree = jax.eval_shape(model.init_with_output, key, ids, ids[:, :5])
    >>> logits.shape, sorted(tree["params"])
    ((2, 5, 31), ['decoder', 'embeddings', 'encoder'])
    """

    config: TransformerConfig

    def setup(self):
        self.embeddings = Embeddings(self.config)
        self.encoder = Stack(self.config, False, self.embeddings)
        self.decoder = Stack(self.config, True, self.embeddings)

    def __call__(
        self,
        input_ids: jax.Array,
        decoder_input_ids: jax.Array,
        attention_mask: jax.Array | None = None,
        decoder_attention_mask: jax.Array | None = None,
        *,
        deterministic: bool = True,
    ) -> jax.Array:
        """float32 scores of the token after each of `decoder_input_ids`.

        In masks 0 is padding, and packed rows number their texts, with the same numbers
        on both sides. Raises ValueError for rows longer than the config's positions.
        """
        memory = self.encode(input_ids, attention_mask, deterministic=deterministic)
        return self.decode(
            decoder_input_ids,
            decoder_attention_mask,
            memory,
            attention_mask,
            deterministic=deterministic,
        )

    def encode(self, input_ids, attention_mask=None, *, deterministic=True):
        """`[B, M] -> [B, M, D]`: the memory for the decoder."""
        return self.encoder(input_ids, attention_mask, deterministic=deterministic)

    def decode(
        self,
        decoder_input_ids,
        decoder_attention_mask,
        memory,
        attention_mask=None,
        *,
        deterministic=True,
    ):
        """`[B, L]` and a memory `[B, M, D]` with its mask -> `[B, L, V]`."""
        x = self._decoded(
            decoder_input_ids,
            decoder_attention_mask,
            memory,
            attention_mask,
            deterministic,
        )
        return self.decoder.attend(x).astype(jnp.float32)

    def start(self, memory):
        """The state before the first step: none, as each step reads all tokens."""
        return ()

    def step(self, tokens, t, state, memory, attention_mask=None):
        """`[B, V]` scores of the token after position t of `[B, L]`, and the state.

        >>> model = TransformerConfig(31, 12, 1, 3, 20).build()
        >>> tree = jax.jit(model.init)(key, ids, ids)
        >>> memory = jnp.ones((2, 3, 12))
        >>> scores, _ = model.apply(tree, ids, 4, (), memory, method="step")
        >>> scores.shape
        (2, 31)
        """
        x = self._decoded(tokens, None, memory, attention_mask, True)
        x = jax.lax.dynamic_index_in_dim(x, t, axis=1, keepdims=False)
        return self.decoder.attend(x).astype(jnp.float32), state

    def _decoded(self, ids, mask, memory, memory_mask, deterministic):
        if memory_mask is None:
            memory_mask = jnp.ones(memory.shape[:2], jnp.int32)
        return self.decoder(
            ids,
            mask,
            memory=memory,
            memory_mask=memory_mask,
            deterministic=deterministic,
        )
