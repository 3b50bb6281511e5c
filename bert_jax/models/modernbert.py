"""ModernBERT (Warner et al., 2024): pre-norm, rotary, gated, mostly local attention."""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
from flax import linen as nn

from bert_jax.models import layers, masks, ops
from bert_jax.models.config import EncoderConfig

GLOBAL, LOCAL = "full_attention", "sliding_attention"


@dataclasses.dataclass(unsafe_hash=True)
class ModernBertConfig(EncoderConfig):
    """Field names are those of a published `config.json`; defaults are those of base.

    With `global_attn_every_n_layers=n` the layers 0, n, 2 n, ... attend to the whole
    row, the others to `local_attention // 2` positions on either side; `layer_types`
    instead names the kind of each layer, `GLOBAL` or `LOCAL`. Rotary angles have a base
    for each kind, `global_rope_theta` and `local_rope_theta`. `attention_dropout`
    applies to attention weights, `attention_out_dropout`, which no `config.json` has,
    to the output of attention. For `dtype`, `remat` and `attention` see `BertConfig`.

    >>> ModernBertConfig(num_hidden_layers=5).windows
    (None, 64, 64, None, 64)
    """

    vocab_size: int = 50368
    hidden_size: int = 768
    intermediate_size: int = 1152
    num_hidden_layers: int = 22
    num_attention_heads: int = 12
    hidden_activation: str = "gelu"
    max_position_embeddings: int = 8192
    initializer_range: float = 0.02
    norm_eps: float = 1e-5
    norm_bias: bool = False
    pad_token_id: int = 50283
    attention_bias: bool = False
    attention_dropout: float = 0.0
    attention_out_dropout: float = 0.0
    embedding_dropout: float = 0.0
    mlp_bias: bool = False
    mlp_dropout: float = 0.0
    global_attn_every_n_layers: int = 3
    layer_types: tuple[str, ...] = ()
    local_attention: int = 128
    global_rope_theta: float = 160_000.0
    local_rope_theta: float = 10_000.0
    tie_word_embeddings: bool = True
    model_type: str = "modernbert"
    dtype: str = "float32"
    remat: bool = False
    attention: str = "auto"

    def validate(self) -> None:
        """Raises ValueError with the field, its value and the remedy."""
        self.check_common("hidden_activation")
        self.check_sizes("global_attn_every_n_layers", "local_attention")
        for name in ("global_rope_theta", "local_rope_theta"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(
                    f"{name}={getattr(self, name)} is not a base of rotary angles; "
                    "choose a positive number"
                )
        self.check_rates(
            "attention_dropout",
            "attention_out_dropout",
            "embedding_dropout",
            "mlp_dropout",
        )
        if self.hidden_size // self.num_attention_heads % 2:
            raise ValueError(
                f"hidden_size={self.hidden_size} gives num_attention_heads="
                f"{self.num_attention_heads} an odd number each, which cannot "
                "rotate in pairs; change one of them"
            )
        if len(self.layer_types) not in (0, self.num_hidden_layers):
            raise ValueError(
                f"layer_types names {len(self.layer_types)} layers, but "
                f"num_hidden_layers={self.num_hidden_layers}; name as many, or none"
            )
        for kind in self.layer_types:
            if kind not in (GLOBAL, LOCAL):
                raise ValueError(
                    f"layer_types has {kind!r}; choose {GLOBAL!r} or {LOCAL!r}"
                )

    @property
    def hidden_act(self) -> str:
        """The activation of the MLPs and of heads."""
        return self.hidden_activation

    @property
    def layer_norm_eps(self) -> float:
        """Epsilon of layer norms."""
        return self.norm_eps

    @property
    def hidden_dropout_prob(self) -> float:
        """Dropout of heads that name no rate."""
        return self.mlp_dropout

    @property
    def attention_probs_dropout_prob(self) -> float:
        """Dropout of attention weights."""
        return self.attention_dropout

    @property
    def mlp_kernels(self) -> int:
        """Kernels of one MLP: up, gate and down."""
        return 3

    @property
    def windows(self) -> tuple[int | None, ...]:
        """Positions that each layer sees to either side; None: the whole row."""
        n = self.global_attn_every_n_layers
        is_global = [i % n == 0 for i in range(self.num_hidden_layers)]
        if self.layer_types:
            is_global = [kind == GLOBAL for kind in self.layer_types]
        return tuple(None if x else self.local_attention // 2 for x in is_global)

    def truncated(self) -> "ModernBertConfig":
        """This config with two layers, the second of which is like all after it."""
        few = min(self.num_hidden_layers, 2)
        return dataclasses.replace(self, num_hidden_layers=few, layer_types=())

    def build(self) -> "ModernBert":
        """The encoder this config describes."""
        self.validate()
        return ModernBert(self)


class Embeddings(nn.Module):
    """Word embeddings, normalised: `[B, L] -> [B, L, D]`."""

    config: ModernBertConfig

    def setup(self):
        c = self.config
        init = layers.kernel_init(c.initializer_range)
        self.word = self.param("word", init, (c.vocab_size, c.hidden_size))
        self.norm = layers.LayerNorm(c.norm_eps, c.dtype, c.norm_bias)
        self.dropout = layers.Dropout(c.embedding_dropout)

    def __call__(self, input_ids, *, deterministic=True):
        x = ops.lookup(jnp.asarray(self.word, self.config.dtype), input_ids)
        return self.dropout(self.norm(x), deterministic)

    def attend(self, x: jax.Array) -> jax.Array:
        """`[..., D] -> [..., V]`: the product with the transposed word embedding."""
        return ops.matmul(x, self.word.T, self.config.dtype)


class GatedMlp(nn.Module):
    """`down(activation(up(x)) * gate(x))` (Shazeer, 2020): `[..., D] -> [..., D]`."""

    config: ModernBertConfig

    @nn.compact
    def __call__(self, x: jax.Array, *, deterministic: bool = True) -> jax.Array:
        c = self.config

        def dense(name, features, stddev):
            return layers.Dense(features, stddev, c.dtype, c.mlp_bias, name=name)

        up = dense("up", c.intermediate_size, c.initializer_range)
        gate = dense("gate", c.intermediate_size, c.initializer_range)
        y = layers.ACTIVATIONS[c.hidden_activation](up(x)) * gate(x)
        y = layers.Dropout(c.mlp_dropout)(y, deterministic)
        return dense("down", c.hidden_size, out_stddev(c))(y)


def out_stddev(config: ModernBertConfig) -> float:
    """Deviation of the last kernel of a branch (Shoeybi et al., 2019, section 4.2)."""
    return config.initializer_range / (2 * config.num_hidden_layers) ** 0.5


class Block(nn.Module):
    """Attention, then MLP, each of the normalised input and added to it (pre-norm).

    The input of the first block is normalised already, so that it has no norm.
    """

    config: ModernBertConfig
    is_first: bool = False

    @nn.compact
    def __call__(self, x, mask, angles, *, deterministic=True):
        c = self.config

        def norm(name):
            return layers.LayerNorm(c.norm_eps, c.dtype, c.norm_bias, name=name)

        attention = layers.Attention(
            c.num_attention_heads,
            c.attention_dropout,
            c.initializer_range,
            c.dtype,
            c.attention,
            c.attention_bias,
            out_stddev(c),
            name="attention",
        )
        turn = functools.partial(layers.rotate, angles=angles)
        y = x if self.is_first else norm("attention_norm")(x)
        y = attention(y, mask, turn=turn, deterministic=deterministic)
        x += layers.Dropout(c.attention_out_dropout)(y, deterministic)
        mlp = GatedMlp(c, name="mlp")
        return x + mlp(norm("mlp_norm")(x), deterministic=deterministic)


class ModernBert(nn.Module):
    """Token ids to vectors: `[B, L] -> [B, L, D]`.

    Parameters: `embeddings/{word,norm}`, `layer_<i>/attention/{query,key,value,out}/
    kernel`, `layer_<i>/attention_norm` (not in layer 0), `layer_<i>/mlp/{up,gate,down}/
    kernel`, `layer_<i>/mlp_norm`, `final_norm`; biases where the config has them.

    >>> encoder = ModernBertConfig(hidden_size=48, num_hidden_layers=2).build()
    >>> x, tree = jax.eval_shape(encoder.init_with_output, key, ids)
    >>> x.shape, sorted(tree["params"]["layer_0"])
    ((2, 7, 48), ['attention', 'mlp', 'mlp_norm'])
    """

    config: ModernBertConfig

    def setup(self):
        c = self.config
        self.embeddings = Embeddings(c)
        self.layer = [Block(c, i == 0) for i in range(c.num_hidden_layers)]
        self.final_norm = layers.LayerNorm(c.norm_eps, c.dtype, c.norm_bias)

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

        Packed rows restart `position_ids` at each sequence; local attention measures
        distances by them. Raises ValueError for rows longer than the config's
        positions.
        """
        c = self.config
        c.check_shape(input_ids)
        c.check_length(input_ids.shape[1])
        if attention_mask is None:
            attention_mask = jnp.ones_like(input_ids)
        if position_ids is None:
            position_ids = jnp.arange(input_ids.shape[1])[None]
        width = c.hidden_size // c.num_attention_heads
        angles = {
            window: layers.angles(
                position_ids,
                width,
                c.global_rope_theta if window is None else c.local_rope_theta,
            )
            for window in set(c.windows)
        }
        x = self.embeddings(input_ids, deterministic=deterministic)

        def run(block, x, mask, angles):
            return block(x, mask, angles, deterministic=deterministic)

        run = nn.remat(run) if c.remat else run
        for block, window in zip(self.layer, c.windows, strict=True):
            self.sow("intermediates", "hidden_states", x)
            mask = masks.Mask(attention_mask, positions=position_ids, window=window)
            x = run(block, x, mask, angles[window])
        x = self.final_norm(x)
        self.sow("intermediates", "hidden_states", x)
        return x

    def attend(self, x: jax.Array) -> jax.Array:
        """`[..., D] -> [..., V]` with the tied word embedding, for masked LM."""
        return self.embeddings.attend(x)
