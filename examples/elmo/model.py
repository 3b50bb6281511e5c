"""ELMo's network: words from characters, and LSTMs in both directions.

Peters et al., 2018, section 3; sizes, gates and clipping as in allenai/bilm-tf. For
each word of a sentence, with its characters e:

    x = W_p highway(highway(max over places of relu(convolutions of e)))
    highway(x) = g * relu(W_t x + b_t) + (1 - g) * x     with g = sigmoid(W_c x + b_c)

    i, j, f, o = W [x_t; h_(t-1)] + b                     forward; backward has t + 1
    c_t = clip(sigmoid(f + 1) * c_(t-1) + sigmoid(i) * tanh(j))
    h_t = clip(W_h (sigmoid(o) * tanh(c_t)))
"""

import dataclasses
import functools
from collections.abc import Mapping

import jax
import jax.numpy as jnp
from flax import linen as nn

from examples.elmo.words import CHARACTERS

# For each direction and layer the cells [B, F] and outputs [B, D] after the last word.
States = Mapping[str, list[tuple[jax.Array, jax.Array]]]


@dataclasses.dataclass(unsafe_hash=True)
class ElmoConfig:
    """Sizes of the network; the defaults are those of the published model.

    Attributes:
      vocab_size: words that the language model predicts.
      hidden_size: of the vectors of one direction.
      cell_size: of the LSTMs' cells.
      num_hidden_layers: LSTMs in each direction.
      filters: convolutions over 1, 2, 3, … characters.
      character_size: of the vectors of characters.
      max_characters: of a word with its two marks; longer words are cut.
      num_highways: highway layers.
      cell_clip, projection_clip: largest values of cells and of outputs.
      skip_connections: True adds the input of every LSTM but the first to its output.
      dropout: of the inputs of LSTMs and of the last outputs.
      dtype, remat, attention: set by the run, which has no choice here.
    """

    vocab_size: int = 793_471
    hidden_size: int = 512
    cell_size: int = 4096
    num_hidden_layers: int = 2
    filters: tuple[int, ...] = (32, 32, 64, 128, 256, 512, 1024)
    character_size: int = 16
    max_characters: int = 50
    num_highways: int = 2
    cell_clip: float = 3.0
    projection_clip: float = 3.0
    skip_connections: bool = True
    dropout: float = 0.1
    dtype: str = "float32"
    remat: bool = False
    attention: str = "auto"

    def validate(self) -> None:
        """Raises ValueError with the field, its value and the remedy."""
        sizes = ("vocab_size", "hidden_size", "cell_size", "num_hidden_layers")
        for name in (*sizes, "character_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}; it must be at least 1")
        if self.max_characters < max(3, len(self.filters)) or not self.filters:
            raise ValueError(
                f"max_characters={self.max_characters} is less than the longest of "
                f"filters={self.filters}, or than 3; change one of them"
            )
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout={self.dropout}; choose one in [0, 1)")
        if (self.dtype, self.remat, self.attention) != ("float32", False, "auto"):
            raise ValueError(
                f"dtype={self.dtype!r}, remat={self.remat}, "
                f"attention={self.attention!r}; ELMo has float32, no remat and no "
                "attention: leave them out"
            )

    def for_device(
        self, platform: str, capability: float, length: int, sequences: int
    ) -> "ElmoConfig":
        """This config: no kernel depends on the device."""
        return self

    def build(self) -> "BiLstm":
        """The network."""
        self.validate()
        return BiLstm(self)

    @property
    def kernels(self) -> int:
        """Weights that multiply each word, those of places of convolutions each time.

        Without the scores of the vocabulary.
        """
        D, F, width = self.hidden_size, self.cell_size, sum(self.filters)
        places = [
            (self.max_characters - w + 1) * w * self.character_size * count
            for w, count in enumerate(self.filters, 1)
        ]
        words = sum(places) + self.num_highways * 2 * width**2 + width * D
        return words + 2 * self.num_hidden_layers * (2 * D * 4 * F + F * D)


class Characters(nn.Module):
    """Words from their characters, `[B, L, W] -> [B, L, D]`."""

    config: ElmoConfig

    @nn.compact
    def __call__(self, characters: jax.Array) -> jax.Array:
        c = self.config
        ids = characters.reshape(-1, characters.shape[-1])
        table = self.param("embedding", _uniform(1.0), (CHARACTERS, c.character_size))
        x = jnp.take(table, jnp.maximum(ids - 1, 0), axis=0)
        x = jnp.where((ids > 0)[..., None], x, 0.0)
        x = jnp.concatenate(
            [
                jax.nn.relu(_Convolution(width, count, name=f"convolution_{width}")(x))
                for width, count in enumerate(c.filters, 1)
            ],
            axis=-1,
        )
        init = nn.initializers.normal(x.shape[-1] ** -0.5)
        dense = functools.partial(nn.Dense, kernel_init=init)
        # Gates start almost closed, so that a highway starts close to the identity.
        closed = nn.initializers.constant(-2.0)
        for i in range(c.num_highways):
            carry = dense(x.shape[-1], bias_init=closed, name=f"highway_{i}_carry")
            transform = dense(x.shape[-1], name=f"highway_{i}_transform")
            gate = jax.nn.sigmoid(carry(x))
            x = gate * jax.nn.relu(transform(x)) + (1 - gate) * x
        x = dense(c.hidden_size, name="projection")(x)
        return x.reshape(*characters.shape[:2], -1)


class _Convolution(nn.Module):
    """The largest value of each filter over all places, `[N, W, C] -> [N, F]`."""

    width: int
    count: int

    @nn.compact
    def __call__(self, x):
        shape = (self.width, x.shape[-1], self.count)
        kernel = self.param("kernel", _uniform(0.05), shape)
        bias = self.param("bias", nn.initializers.zeros, (self.count,))
        # As one product: on CPU its gradient is faster than that of a convolution.
        places = x.shape[1] - self.width + 1
        x = jnp.concatenate([x[:, i : i + places] for i in range(self.width)], -1)
        return (x @ kernel.reshape(-1, self.count)).max(1) + bias[None]


def _uniform(limit):
    return lambda key, shape: jax.random.uniform(
        key, shape, minval=-limit, maxval=limit
    )


class Lstm(nn.Module):
    """One LSTM with a projection; with `reverse` it reads from the last word on.

    Its gates are TensorFlow's, in the order input, new value, forget, output.
    """

    config: ElmoConfig
    reverse: bool

    @nn.compact
    def __call__(
        self,
        x: jax.Array,
        attention_mask: jax.Array,
        state: tuple[jax.Array, jax.Array] | None = None,
    ) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        """Outputs `[B, L, D]` of `x` `[B, L, D]`, and the state after the last word.

        A place without a word leaves the state as it is.
        """
        c = self.config
        (B, L, D), F = x.shape, c.cell_size
        init = nn.initializers.glorot_uniform()
        kernel = self.param("kernel", init, (2 * D, 4 * F))
        bias = self.param("bias", nn.initializers.zeros, (4 * F,))
        projection = self.param("projection", init, (F, D))

        def step(state, inputs):
            gates, real = inputs
            i, j, f, o = jnp.split(gates + state[1] @ kernel[D:], 4, axis=-1)
            cell = jax.nn.sigmoid(f + 1) * state[0] + jax.nn.sigmoid(i) * jnp.tanh(j)
            cell = jnp.clip(cell, -c.cell_clip, c.cell_clip)
            output = (jax.nn.sigmoid(o) * jnp.tanh(cell)) @ projection
            output = jnp.clip(output, -c.projection_clip, c.projection_clip)
            new = jnp.where(real, cell, state[0]), jnp.where(real, output, state[1])
            return new, new[1]

        if state is None:
            state = jnp.zeros((B, F)), jnp.zeros((B, D))
        gates = (x.reshape(-1, D) @ kernel[:D] + bias[None]).reshape(B, L, -1)
        real = (attention_mask > 0)[..., None]
        over_time = gates.swapaxes(0, 1), real.swapaxes(0, 1)
        state, outputs = jax.lax.scan(step, state, over_time, reverse=self.reverse)
        return outputs.swapaxes(0, 1), state


class BiLstm(nn.Module):
    """Words in context; the two directions share the words and nothing else."""

    config: ElmoConfig

    def setup(self):
        c = self.config
        layers = range(c.num_hidden_layers)
        self.characters = Characters(c)
        self.forward = [Lstm(c, reverse=False) for _ in layers]
        self.backward = [Lstm(c, reverse=True) for _ in layers]
        self.drop = nn.Dropout(c.dropout)

    def __call__(self, characters, attention_mask, *, deterministic=True) -> jax.Array:
        """All layers `[layers + 1, B, L, 2 D]`; layer 0 has the words' vectors twice.

        Args:
          characters: `[B, L, W]`, see `character_ids`.
          attention_mask: `[B, L]`, 0 for places without a word.
          deterministic: True applies no dropout.
        """
        layers, _ = self.encode(characters, attention_mask, deterministic=deterministic)
        return layers

    def encode(
        self,
        characters: jax.Array,
        attention_mask: jax.Array,
        states: States | None = None,
        *,
        deterministic: bool = True,
    ) -> tuple[jax.Array, States]:
        """The layers, after other texts with `states`, and the states after these."""
        words = self.characters(characters)
        ends: States = {"forward": [], "backward": []}
        stacks = {"forward": self.forward, "backward": self.backward}
        outputs = {name: [words] for name in stacks}
        for name, stack in stacks.items():
            x = words
            for i, lstm in enumerate(stack):
                inputs = self.drop(x, deterministic=deterministic)
                x, end = lstm(
                    inputs, attention_mask, states[name][i] if states else None
                )
                if i and self.config.skip_connections:
                    x += inputs
                outputs[name].append(x)
                ends[name].append(end)
        pairs = zip(outputs["forward"], outputs["backward"], strict=True)
        return jnp.stack([jnp.concatenate(pair, -1) for pair in pairs]), ends


class LanguageModel(nn.Module):
    """Both directions with the table of words that their last layers predict."""

    encoder: BiLstm

    def setup(self):
        c = self.encoder.config
        init = nn.initializers.normal(c.hidden_size**-0.5)
        self.word = self.param("word", init, (c.vocab_size, c.hidden_size))
        self.bias = self.param("bias", nn.initializers.zeros, (c.vocab_size,))
        self.drop = nn.Dropout(c.dropout)

    def __call__(self, characters, attention_mask, *, deterministic=True) -> jax.Array:
        """`[2, B, L, D]`: last outputs, forward and backward; see `BiLstm`.

        Their products with `word` plus `bias` score the next and the previous word.
        """
        layers = self.encoder(characters, attention_mask, deterministic=deterministic)
        last = self.drop(layers[-1], deterministic=deterministic)
        return jnp.stack(jnp.split(last, 2, axis=-1))
