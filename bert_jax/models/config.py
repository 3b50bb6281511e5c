"""The base of every encoder's config: what code outside its file may ask of it."""

import abc
import dataclasses
from collections.abc import Collection
from typing import Any, Self

import jax
import numpy as np
from flax import linen as nn

from bert_jax.models import layers
from bert_jax.models.kernels import select

DTYPES = ("float32", "bfloat16", "float16")

# A type to compute in: its name, or the type itself, such as `jnp.bfloat16`.
DType = str | np.dtype | type[Any]


def dtype_name(dtype: DType) -> str:
    """The name of a type to compute in. Raises ValueError for one not in `DTYPES`.

    >>> dtype_name(jax.numpy.bfloat16), dtype_name(np.dtype("float32"))
    ('bfloat16', 'float32')
    """
    try:
        name = dtype if isinstance(dtype, str) else np.dtype(dtype).name
    except TypeError:
        name = repr(dtype)
    if dtype is None or name not in DTYPES:
        raise ValueError(
            f"dtype={dtype!r:.60} is unknown; choose one of {', '.join(DTYPES)}"
        )
    return name


@dataclasses.dataclass(unsafe_hash=True)
class EncoderConfig(abc.ABC):
    """The sizes and choices of an encoder.

    An encoder's own config is a dataclass with this base. Its fields bear the names of
    the family's published `config.json`; where these differ from the names below, a
    property translates. The properties that are not abstract are right for an encoder
    like BERT; an encoder that differs overrides them.

    A new encoder is one file with such a config and its module, and one table of
    `bert_jax.pretrained`. The module has the config in its field `config`, is called as
    `Bert` is, and has `attend`, the product with its word embeddings.
    """

    @property
    @abc.abstractmethod
    def model_type(self) -> str:
        """The family that a saved model belongs to."""

    @property
    @abc.abstractmethod
    def vocab_size(self) -> int:
        """Rows of the word embeddings."""

    @property
    @abc.abstractmethod
    def hidden_size(self) -> int:
        """Numbers in each token's vector."""

    @property
    @abc.abstractmethod
    def num_hidden_layers(self) -> int:
        """Layers, each one attention and one MLP."""

    @property
    @abc.abstractmethod
    def num_attention_heads(self) -> int:
        """Heads of each attention."""

    @property
    @abc.abstractmethod
    def intermediate_size(self) -> int:
        """Numbers between the two layers of an MLP."""

    @property
    @abc.abstractmethod
    def hidden_act(self) -> str:
        """The activation of the MLPs and of heads, by its name in `ACTIVATIONS`."""

    @property
    @abc.abstractmethod
    def max_position_embeddings(self) -> int:
        """Positions that a row may have."""

    @property
    @abc.abstractmethod
    def hidden_dropout_prob(self) -> float:
        """Dropout of branches, and of heads that name no rate."""

    @property
    @abc.abstractmethod
    def attention_probs_dropout_prob(self) -> float:
        """Dropout of attention weights."""

    @property
    @abc.abstractmethod
    def initializer_range(self) -> float:
        """Standard deviation of new kernels."""

    @property
    @abc.abstractmethod
    def layer_norm_eps(self) -> float:
        """Epsilon of layer norms."""

    @property
    @abc.abstractmethod
    def pad_token_id(self) -> int:
        """The id of padding."""

    @property
    @abc.abstractmethod
    def tie_word_embeddings(self) -> bool:
        """True scores words by the word embeddings, False by a table of the head."""

    @property
    @abc.abstractmethod
    def dtype(self) -> str:
        """The dtype of the compute, one of `DTYPES`; parameters are float32."""

    @property
    @abc.abstractmethod
    def remat(self) -> bool:
        """True computes each block a second time in the backward pass."""

    @property
    @abc.abstractmethod
    def attention(self) -> str:
        """The attention kernel: one of `select.KERNELS`, "plain" or "auto"."""

    @abc.abstractmethod
    def validate(self) -> None:
        """Raises ValueError with the field, its value and the remedy."""

    @abc.abstractmethod
    def build(self) -> nn.Module:
        """The encoder this config describes."""

    @property
    def embedding_size(self) -> int | None:
        """Width of the word embeddings; None: `hidden_size`."""
        return None

    @property
    def type_vocab_size(self) -> int:
        """Rows of the token type embeddings; 0: there are none."""
        return 0

    @property
    def sinusoidal_pos_embds(self) -> bool:
        """True has a fixed table of positions, see `layers.sinusoids`."""
        return False

    @property
    def num_hidden_groups(self) -> int | None:
        """Groups of layers that share weights; None: no layers do."""
        return None

    @property
    def inner_group_num(self) -> int:
        """Blocks in each group of layers that share weights."""
        return 1

    @property
    def norm_bias(self) -> bool:
        """True has layer norms with a bias."""
        return True

    @property
    def mlp_kernels(self) -> int:
        """Kernels of one MLP, each `hidden_size` by `intermediate_size`."""
        return 2

    @property
    def max_length(self) -> int:
        """The longest row in tokens."""
        return self.max_position_embeddings

    @property
    def layer_order(self) -> tuple[int, ...]:
        """The `i` of the parameters `layer_<i>` that run at each depth."""
        return tuple(range(self.num_hidden_layers))

    @property
    def windows(self) -> tuple[int | None, ...]:
        """Positions that each depth sees to either side; None: the whole row."""
        return (None,) * len(self.layer_order)

    def truncated(self) -> Self:
        """This config with few layers, the last of which is like all after it."""
        changes: dict[str, Any] = {"num_hidden_layers": 1}
        return dataclasses.replace(self, **changes)

    def for_device(
        self, platform: str, capability: float, length: int, sequences: int
    ) -> Self:
        """This config with the attention kernel for `select.DeviceSpec(...)`."""
        spec = select.DeviceSpec(platform, capability, length, sequences)
        changes: dict[str, Any] = {"attention": select.choose(self, spec)}
        return dataclasses.replace(self, **changes)

    def training_flops(
        self,
        *,
        tokens: jax.Array | float,
        seen: jax.Array | float,
        predictions: jax.Array | float,
    ) -> jax.Array | float:
        """FLOPs of one update for MFU: matrix products only, backward twice forward.

        Args:
          tokens: the number of real tokens. This and the next two are floats, because
            integers of this size may not fit into 32 bits.
          seen: the number of (query, key) pairs that attention lets through in a layer.
          predictions: the number of tokens scored over the vocabulary.
        """
        D, F = float(self.hidden_size), float(self.intermediate_size)
        block = 4 * D * D + self.mlp_kernels * D * F
        blocks = self.num_hidden_layers * (block * tokens + 2 * D * seen)
        return 6.0 * (blocks + predictions * (D * D + D * self.vocab_size))

    def check_common(self, activation: str) -> None:
        """Checks what every config has; `activation` is the field of the MLPs'."""
        self.check_sizes(
            "vocab_size",
            "hidden_size",
            "num_hidden_layers",
            "num_attention_heads",
            "intermediate_size",
            "max_position_embeddings",
        )
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"hidden_size={self.hidden_size} is not a multiple of "
                f"num_attention_heads={self.num_attention_heads}; change one of them"
            )
        self.check_choice(activation, layers.ACTIVATIONS)
        self.check_choice("dtype", DTYPES)
        self.check_choice("attention", ("auto", "plain", *select.KERNELS))

    def check_sizes(self, *names: str) -> None:
        """Raises ValueError for a field below 1."""
        for name in names:
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}; it must be at least 1")

    def check_choice(self, name: str, choices: Collection[str]) -> None:
        """Raises ValueError for a field that is not one of `choices`."""
        if getattr(self, name) not in choices:
            raise ValueError(
                f"{name}={getattr(self, name)!r} is unknown; "
                f"choose one of {', '.join(choices)}"
            )

    def check_rates(self, *names: str) -> None:
        """Raises ValueError for a rate of dropout that is not in [0, 1)."""
        for name in names:
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(
                    f"{name}={getattr(self, name)} is not a probability below 1; "
                    "choose one in [0, 1)"
                )

    def check_shape(self, input_ids: jax.Array) -> None:
        """Raises ValueError for ids that are not `[B, L]`."""
        if input_ids.ndim != 2:
            raise ValueError(
                f"input_ids has the shape {list(input_ids.shape)}; give [B, L], also "
                "inside of jax.vmap: input_ids[None] is a batch of one row"
            )

    def check_length(self, length: int) -> None:
        """Raises ValueError for rows longer than `max_length`."""
        if length > self.max_length:
            raise ValueError(
                f"sequence length {length} exceeds the {self.max_length} positions of "
                f"max_position_embeddings={self.max_position_embeddings}; "
                "truncate the input or raise it"
            )
