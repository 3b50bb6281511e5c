"""BERT (Devlin et al., 2018), and by config RoBERTa, DistilBERT, ALBERT, ELECTRA."""

import dataclasses

import jax
import jax.numpy as jnp
from flax import linen as nn

from bert_jax.models import layers, ops
from bert_jax.models.config import EncoderConfig


@dataclasses.dataclass(unsafe_hash=True)
class BertConfig(EncoderConfig):
    """Field names are those of a published `config.json`; defaults are BERT-base.

    Attributes:
      type_vocab_size: 0 for no token types (DistilBERT).
      embedding_size: width of the embeddings, where it is not `hidden_size` (ALBERT,
        ELECTRA).
      num_hidden_groups: groups of layers that share one set of weights (ALBERT).
      inner_group_num: blocks that each layer runs (ALBERT).
      position_offset: the number of the first position (2 in RoBERTa, where padding has
        the number before).
      sinusoidal_pos_embds: True takes `layers.sinusoids` as the table of positions
        instead of learning one.
      model_type: the family that a saved model belongs to.
      dtype: the dtype of the compute; parameters are float32.
      remat: True stores only the input of each block for the backward pass, which
        computes the rest again: less memory, a third more work, the same result.
      attention: the kernel, a name in `select.KERNELS`, or "plain". "auto" is "plain"
        unless `for_device` has chosen a kernel.

    >>> tree = jax.eval_shape(BertConfig().build().init, key, ids)["params"]
    >>> sum(x.size for x in jax.tree.leaves(tree))  # BERT-base without its pooler
    108891648
    """

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12
    pad_token_id: int = 0
    position_offset: int = 0
    sinusoidal_pos_embds: bool = False
    embedding_size: int | None = None
    num_hidden_groups: int | None = None
    inner_group_num: int = 1
    tie_word_embeddings: bool = True
    model_type: str = "bert"
    dtype: str = "float32"
    remat: bool = False
    attention: str = "auto"

    def validate(self) -> None:
        """Raises ValueError with the field, its value and the remedy."""
        self.check_common("hidden_act")
        self.check_rates("hidden_dropout_prob", "attention_probs_dropout_prob")

    @property
    def max_length(self) -> int:
        """The longest row that the position table holds."""
        return self.max_position_embeddings - self.position_offset

    @property
    def layer_order(self) -> tuple[int, ...]:
        """The `i` of the `layer_<i>` at each depth: 0, 1, 2, ... if none is shared."""
        groups = self.num_hidden_groups or self.num_hidden_layers
        # The quotient in floating point is ALBERT's own, down to its rounding.
        size = self.num_hidden_layers / groups
        return tuple(
            int(depth / size) * self.inner_group_num + inner
            for depth in range(self.num_hidden_layers)
            for inner in range(self.inner_group_num)
        )

    def truncated(self) -> "BertConfig":
        """This config with one layer, which all others are like."""
        return dataclasses.replace(
            self, num_hidden_layers=1, num_hidden_groups=None, inner_group_num=1
        )

    def build(self) -> "Bert":
        """The encoder this config describes."""
        self.validate()
        return Bert(self)


def sized(num_hidden_layers: int, hidden_size: int, **changes) -> BertConfig:
    """A config in BERT's proportions: heads of 64, an MLP four times as wide.

    >>> large = sized(24, 1024, max_position_embeddings=128)
    >>> large.num_attention_heads, large.intermediate_size
    (16, 4096)
    """
    return BertConfig(
        num_hidden_layers=num_hidden_layers,
        hidden_size=hidden_size,
        num_attention_heads=hidden_size // 64,
        intermediate_size=4 * hidden_size,
        **changes,
    )


# (layers, hidden size) of the published models. The 24 miniatures (Turc et al., 2019)
# are `sized(L, D)` for L in 2, 4, ..., 12 and D in 128, 256, 512, 768.
SIZES = {
    "tiny": (2, 128),
    "mini": (4, 256),
    "small": (4, 512),
    "medium": (8, 512),
    "base": (12, 768),
    "large": (24, 1024),
}


class Embeddings(nn.Module):
    """Sum of word, position and type embeddings, normalised: `[B, L] -> [B, L, D]`.

    >>> module = Embeddings(sized(2, 128))
    >>> x, tree = jax.eval_shape(module.init_with_output, key, ids, ids, ids)
    >>> x.shape, sorted(tree["params"])
    ((2, 7, 128), ['norm', 'position', 'token_type', 'word'])
    """

    config: BertConfig

    def setup(self):
        c = self.config
        width = c.embedding_size or c.hidden_size
        init = layers.kernel_init(c.initializer_range)
        self.word = self.param("word", init, (c.vocab_size, width))
        positions = (c.max_position_embeddings, width)
        self.position = (
            layers.sinusoids(*positions)
            if c.sinusoidal_pos_embds
            else self.param("position", init, positions)
        )
        if c.type_vocab_size:
            self.token_type = self.param("token_type", init, (c.type_vocab_size, width))
        self.norm = layers.LayerNorm(c.layer_norm_eps, c.dtype)
        self.dropout = layers.Dropout(c.hidden_dropout_prob)
        if c.embedding_size is not None:
            self.project = layers.Dense(c.hidden_size, c.initializer_range, c.dtype)

    def __call__(self, input_ids, token_type_ids, position_ids, *, deterministic=True):
        c = self.config
        position_ids = position_ids + c.position_offset

        def look_up(table, ids):
            return ops.lookup(jnp.asarray(table, c.dtype), ids).astype(jnp.float32)

        x = look_up(self.word, input_ids) + look_up(self.position, position_ids)
        if c.type_vocab_size:
            # Two rows: a product with one-hot rows beats a scatter-add backward.
            kinds = jax.nn.one_hot(token_type_ids, c.type_vocab_size, dtype=x.dtype)
            x += ops.matmul(kinds, self.token_type, "float32")
        x = self.dropout(self.norm(x), deterministic)
        return x if c.embedding_size is None else self.project(x)

    def attend(self, x: jax.Array) -> jax.Array:
        """`[..., E] -> [..., V]`: the product with the transposed word embedding."""
        return ops.matmul(x, self.word.T, self.config.dtype)


class Block(nn.Module):
    """Attention, then MLP, each added to its input and normalised (post-norm)."""

    config: BertConfig

    @nn.compact
    def __call__(self, x, mask, *, deterministic=True):
        c = self.config
        dropout = layers.Dropout(c.hidden_dropout_prob)
        attention = layers.Attention(
            c.num_attention_heads,
            c.attention_probs_dropout_prob,
            c.initializer_range,
            c.dtype,
            c.attention,
            name="attention",
        )
        mlp = layers.Mlp(
            c.intermediate_size,
            layers.ACTIVATIONS[c.hidden_act],
            c.initializer_range,
            c.dtype,
            name="mlp",
        )
        norm = layers.LayerNorm(c.layer_norm_eps, c.dtype, name="attention_norm")
        y = attention(x, mask, deterministic=deterministic)
        x = norm(x + dropout(y, deterministic))
        norm = layers.LayerNorm(c.layer_norm_eps, c.dtype, name="mlp_norm")
        return norm(x + dropout(mlp(x), deterministic))


class Bert(nn.Module):
    """Token ids to vectors: `[B, L] -> [B, L, D]`.

    Parameters: `embeddings/{word,position,token_type,norm}`, `layer_<i>/attention/
    {query,key,value,out}/{kernel,bias}`, `layer_<i>/attention_norm`, `layer_<i>/mlp/
    {up,down}`, `layer_<i>/mlp_norm`; with shared layers one `layer_<g>` a group, and
    no `position` where it is fixed.

    >>> encoder = sized(2, 128).build()
    >>> x, tree = jax.eval_shape(encoder.init_with_output, key, ids)
    >>> x.shape, tree["params"]["layer_1"]["mlp"]["up"]["kernel"].shape
    ((2, 7, 128), (128, 512))
    """

    config: BertConfig

    def setup(self):
        c = self.config
        self.embeddings = Embeddings(c)
        groups = c.num_hidden_groups or c.num_hidden_layers
        self.layer = [Block(c) for _ in range(groups * c.inner_group_num)]

    def __call__(
        self,
        input_ids: jax.Array,
        attention_mask: jax.Array | None = None,
        token_type_ids: jax.Array | None = None,
        position_ids: jax.Array | None = None,
        *,
        deterministic: bool = True,
    ) -> jax.Array:
        """Encodes a batch.

        Args:
          input_ids: `[B, L]`.
          attention_mask: `[B, L]` integers: 0 is padding, a token sees the tokens
            whose value equals its own (1 for plain rows; 1 1 2 2 2 for packed rows).
          token_type_ids: `[B, L]`: 0 in the first segment, 1 in the second.
          position_ids: `[B, L]`; packed rows restart them at each sequence.
          deterministic: False draws dropout from the rng named "dropout".

        Returns:
          Hidden states of the last layer, `[B, L, D]` in `config.dtype`. With
          `mutable=["intermediates"]`, `apply` also gives those of every layer
          (`hidden_states`) and every layer's attention (`attention/weights`, with
          `attention/queries` and `attention/keys`).

        Raises:
          ValueError: for ids that are not `[B, L]`, and for rows longer than the
            config's positions.

        >>> run = jax.jit(encoder.apply, static_argnames="mutable")
        >>> mask = jnp.array([[1, 1, 1, 2, 2, 2, 0]] * 2)
        >>> x, seen = run({"params": params}, ids, mask, mutable="intermediates")
        >>> weights = seen["intermediates"]["layer_0"]["attention"]["weights"][0]
        >>> weights.shape, (weights[0, 0, 3] > 0).astype(int)
        ((2, 3, 7, 7), Array([0, 0, 0, 1, 1, 1, 0], dtype=int32))
        """
        c = self.config
        c.check_shape(input_ids)
        c.check_length(input_ids.shape[1])
        if attention_mask is None:
            attention_mask = jnp.ones_like(input_ids)
        if token_type_ids is None:
            token_type_ids = jnp.zeros_like(input_ids)
        if position_ids is None:
            position_ids = count_positions(input_ids, c)
        x = self.embeddings(
            input_ids, token_type_ids, position_ids, deterministic=deterministic
        )

        def run(block, x, mask):
            return block(x, mask, deterministic=deterministic)

        run = nn.remat(run) if c.remat else run
        for i in c.layer_order:
            self.sow("intermediates", "hidden_states", x)
            x = run(self.layer[i], x, attention_mask)
        self.sow("intermediates", "hidden_states", x)
        return x

    def attend(self, x: jax.Array) -> jax.Array:
        """`[..., E] -> [..., V]` with the tied word embedding, for masked LM."""
        return self.embeddings.attend(x)


def count_positions(input_ids: jax.Array, config: BertConfig) -> jax.Array:
    """Position ids of plain rows, `[1, L]` or `[B, L]`: 0, 1, 2, ...

    Where positions have an offset (RoBERTa), padding is not counted and has number -1,
    as in fairseq's `make_positions`.
    """
    if not config.position_offset:
        return jnp.arange(input_ids.shape[1])[None]
    real = (input_ids != config.pad_token_id).astype(jnp.int32)
    return jnp.cumsum(real, axis=1) * real - 1
