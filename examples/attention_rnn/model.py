"""An encoder and a decoder of recurrent cells with attention between them.

The encoder reads a text in both directions (Bahdanau et al., 2015, section 3.2). The
decoder writes one token a step and attends to the states of the encoder, either before
its cell, with the state of the step before (Bahdanau et al., section 3.1), or after it,
with the new one (Luong et al., 2015, section 3).
"""

import dataclasses
from typing import Any, Self

import jax
import jax.numpy as jnp
from flax import linen as nn

from bert_jax.models import attention_scores
from examples.attention_rnn.cells import CELLS, State

# How a query [B, D] scores keys [B, M, D], by name: (attention, query, keys) -> [B, M].
SCORES = {
    "additive": lambda a, q, k: a.vector(jnp.tanh(a.query(q)[:, None] + k))[..., 0],
    # v · tanh(W [q; k]): W beside itself is one matrix for q and one for k.
    "concat": lambda a, q, k: a.vector(jnp.tanh(a.query(q)[:, None] + k))[..., 0],
    "general": lambda a, q, k: attention_scores.dot(a.query(q), k),
    "dot": lambda a, q, k: attention_scores.dot(q, k),
    "scaled_dot": lambda a, q, k: attention_scores.scaled_dot(q, k),
    "cosine": lambda a, q, k: a.strength(q) * attention_scores.cosine(q, k),
    "location": lambda a, q, k: a.places(q)[:, : k.shape[1]],
}
WITH_KEYS = ("additive", "concat")
PLACES = ("before", "after")


@dataclasses.dataclass(unsafe_hash=True)
class AttentionRNNConfig:
    """Sizes and choices of the model.

    Attributes:
      vocab_size, embedding_size: of the one table for both texts and for the scores of
        tokens.
      hidden_size: of the decoder; each direction of the encoder has half of it.
      cell: "gru" or "lstm".
      score: a name in `SCORES`, or "none", which has no attention: all that the decoder
        knows of the text is its first state.
      attend: "before" the cell, which reads the attended vector, or "after" it.
      input_feeding: True lets a cell with attention after it read the attentional
        vector of the step before (Luong et al., 2015, section 3.3).
      hidden_dropout_prob: of embeddings and of the vectors that score tokens.
      max_position_embeddings: the limit of a text in tokens; only the score "location"
        has parameters for each position.
      dtype, remat, attention: see `bert_jax.training.TrainConfig`; this model has no
        kernel to choose and nothing to compute again.

    >>> AttentionRNNConfig(score="bilinear").build()
    Traceback (most recent call last):
    ValueError: score='bilinear' is unknown; choose one of additive, concat, ...
    """

    vocab_size: int = 13000
    embedding_size: int = 256
    hidden_size: int = 512
    cell: str = "gru"
    score: str = "additive"
    attend: str = "before"
    input_feeding: bool = True
    hidden_dropout_prob: float = 0.1
    max_position_embeddings: int = 64
    model_type: str = "attention_rnn"
    dtype: str = "float32"
    remat: bool = False
    attention: str = "auto"

    @property
    def max_length(self) -> int:
        """The longest text in tokens."""
        return self.max_position_embeddings

    def validate(self) -> None:
        """Raises ValueError with the field, its value and the remedy."""
        for name in (
            *("vocab_size", "embedding_size", "hidden_size"),
            "max_position_embeddings",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}; it must be at least 1")
        if self.hidden_size % 2:
            raise ValueError(
                f"hidden_size={self.hidden_size} is odd, but each direction has half "
                "of it; change it"
            )
        known = {
            "cell": tuple(CELLS),
            "score": (*SCORES, "none"),
            "attend": PLACES,
            "dtype": ("float32", "bfloat16", "float16"),
            "attention": ("auto", "plain"),
            "remat": (False,),
        }
        for name, choices in known.items():
            if getattr(self, name) not in choices:
                raise ValueError(
                    f"{name}={getattr(self, name)!r} is unknown; choose one of "
                    f"{', '.join(map(str, choices))}"
                )
        if not 0 <= self.hidden_dropout_prob < 1:
            raise ValueError(
                f"hidden_dropout_prob={self.hidden_dropout_prob} is not a probability "
                "below 1; choose one in [0, 1)"
            )

    def for_device(
        self, platform: str, capability: float, length: int, sequences: int
    ) -> Self:
        """This config, which is the same on every device."""
        return self

    def build(self) -> "AttentionRNN":
        """The model."""
        self.validate()
        return AttentionRNN(self)


class CrossAttention(nn.Module):
    """Weights over the encoder's states; has the parameters of its score only."""

    config: AttentionRNNConfig

    def setup(self):
        D, dtype = self.config.hidden_size, self.config.dtype
        self.query = nn.Dense(D, use_bias=False, dtype=dtype)
        self.key = nn.Dense(D, dtype=dtype)
        self.vector = nn.Dense(1, use_bias=False, dtype=dtype)
        self.places = nn.Dense(self.config.max_length, use_bias=False, dtype=dtype)
        # A cosine is in [-1, 1], too narrow for a softmax. Times √D, random vectors
        # score as in scaled dot; the factor depends on the query (Graves et al., 2014).
        start = nn.initializers.constant(D**0.5)
        self.strength = nn.Dense(1, dtype=dtype, bias_init=start)

    def keys(self, states: jax.Array) -> jax.Array:
        """`[B, M, D] -> [B, M, D]`: the part of the scores that no query changes."""
        return self.key(states) if self.config.score in WITH_KEYS else states

    def __call__(self, query: jax.Array, keys: jax.Array, mask: jax.Array) -> jax.Array:
        """`[B, D]`, `[B, M, D]`, `[B, M]` -> float32 weights `[B, M]`, 0 at padding."""
        scores = SCORES[self.config.score](self, query, keys).astype(jnp.float32)
        return jax.nn.softmax(jnp.where(mask > 0, scores, jnp.finfo(jnp.float32).min))


class Encoder(nn.Module):
    """`[B, M, E] -> [B, M, D]`: states of both directions, side by side."""

    config: AttentionRNNConfig

    def setup(self):
        c = self.config
        self.forward = CELLS[c.cell](c.hidden_size // 2, c.dtype)
        self.backward = CELLS[c.cell](c.hidden_size // 2, c.dtype)

    def __call__(self, x: jax.Array, mask: jax.Array) -> jax.Array:
        """A state stays as it is at padding, so padding changes no other state."""

        def run(cell, reverse):
            def step(cell, state, inputs):
                gates, real = inputs
                new = cell(state, gates)
                state = tuple(
                    jnp.where(real[:, None] > 0, *x)
                    for x in zip(new, state, strict=True)
                )
                return state, state[0]

            zeros = jnp.zeros((len(x), cell.size), x.dtype)
            steps = scanned(step, reverse)
            return steps(cell, (zeros,) * cell.arrays, (cell.gates(x), mask))[1]

        both = run(self.forward, False), run(self.backward, True)
        return jnp.concatenate(both, axis=-1)


class Decoder(nn.Module):
    """Tokens so far and the encoder's states -> vectors that score the next token."""

    config: AttentionRNNConfig

    def setup(self):
        c = self.config
        self.cell = CELLS[c.cell](c.hidden_size, c.dtype)
        self.cross_attention = CrossAttention(c)
        self.start = nn.Dense(self.cell.arrays * c.hidden_size, dtype=c.dtype)
        self.feed = nn.Dense(self.cell.width, use_bias=False, dtype=c.dtype)
        self.readout = nn.Dense(c.embedding_size, use_bias=False, dtype=c.dtype)

    def initial(self, states: jax.Array) -> tuple[State, jax.Array]:
        """The cell's first state, tanh(W [last; first]), and an attentional vector 0.

        The forward state after the last token is also that of the last position.
        """
        D = self.config.hidden_size
        ends = states[:, -1, : D // 2], states[:, 0, D // 2 :]
        state = jnp.tanh(self.start(jnp.concatenate(ends, axis=-1)))
        readout = jnp.zeros((len(states), self.config.embedding_size), states.dtype)
        return tuple(jnp.split(state, self.cell.arrays, axis=-1)), readout

    def step(self, carry, gates, memory, mask):
        """One token: the new carry, its attentional vector `[B, E]`, and weights."""
        (state, readout), (states, keys), c = carry, memory, self.config

        def attended(query):
            weights = self.cross_attention(query, keys, mask)
            context = jnp.einsum("BM,BMD->BD", weights.astype(states.dtype), states)
            return weights, [context]

        attends = c.score != "none"
        weights, context = jnp.zeros(mask.shape), []
        if attends and c.attend == "before":
            weights, context = attended(state[0])
            gates = gates + self.feed(*context)
        elif c.attend == "after" and c.input_feeding:
            gates = gates + self.feed(readout)
        state = self.cell(state, gates)
        if attends and c.attend == "after":
            weights, context = attended(state[0])
        readout = jnp.tanh(self.readout(jnp.concatenate([*context, state[0]], -1)))
        return (state, readout), (readout, weights)

    def __call__(self, x: jax.Array, memory: Any, mask: jax.Array) -> jax.Array:
        """`[B, L, E] -> [B, L, E]`, with the tokens of the translation known."""

        def step(decoder, carry, gates):
            return decoder.step(carry, gates, memory, mask)

        steps = scanned(step)
        carry = self.initial(memory[0])
        _, (readouts, weights) = steps(self, carry, self.cell.gates(x))
        if self.config.score != "none":
            self.cross_attention.sow("intermediates", "weights", weights[:, None])
        return readouts


def scanned(step, reverse: bool = False):
    """`(module, carry, inputs [B, L, ...]) -> (carry, outputs [B, L, ...])`."""
    return nn.scan(
        step,
        variable_broadcast="params",
        split_rngs={"params": False},
        in_axes=1,
        out_axes=1,
        reverse=reverse,
    )


class AttentionRNN(nn.Module):
    """A text and the beginning of its translation -> scores of the next token.

    `[B, M], [B, L] -> [B, L, V]`; called like `bert_jax.models.Transformer`. The memory
    of a text is its states and their part of the scores, both `[B, M, D]`.
    """

    config: AttentionRNNConfig

    def setup(self):
        c = self.config
        init = nn.initializers.normal(c.embedding_size**-0.5)
        self.word = self.param("word", init, (c.vocab_size, c.embedding_size))
        self.encoder, self.decoder = Encoder(c), Decoder(c)
        self.dropout = nn.Dropout(c.hidden_dropout_prob)

    def __call__(
        self,
        input_ids: jax.Array,
        decoder_input_ids: jax.Array,
        attention_mask: jax.Array | None = None,
        decoder_attention_mask: jax.Array | None = None,
        *,
        deterministic: bool = True,
    ) -> jax.Array:
        """float32 scores; a decoder without a future needs no mask of its own."""
        if attention_mask is None:
            attention_mask = jnp.ones_like(input_ids)
        memory = self.encode(input_ids, attention_mask, deterministic=deterministic)
        x = self.embed(decoder_input_ids, deterministic)
        x = self.decoder(x, memory, attention_mask)
        return self.attend(self.dropout(x, deterministic))

    def encode(self, input_ids, attention_mask, *, deterministic=True):
        """`[B, M]` -> the memory of a text."""
        length, limit = input_ids.shape[1], self.config.max_length
        if length > limit:
            raise ValueError(
                f"sequence length {length} exceeds max_position_embeddings={limit}; "
                "truncate the input or raise it"
            )
        states = self.encoder(self.embed(input_ids, deterministic), attention_mask)
        return states, self.decoder.cross_attention.keys(states)

    def start(self, memory):
        """The state of the decoder before it writes."""
        return self.decoder.initial(memory[0])

    def step(self, tokens, t, state, memory, attention_mask):
        """Scores `[B, V]` of the token after position t of `[B, L]`, and the state."""
        token = jax.lax.dynamic_index_in_dim(tokens, t, axis=1, keepdims=False)
        gates = self.decoder.cell.gates(self.embed(token, True))
        state, (x, _) = self.decoder.step(state, gates, memory, attention_mask)
        return self.attend(x), state

    def embed(self, ids, deterministic):
        """`[...] -> [..., E]`, of the size of states."""
        x = jnp.asarray(self.word)[ids] * self.config.embedding_size**0.5
        return self.dropout(x.astype(self.config.dtype), deterministic)

    def attend(self, x):
        """`[..., E] -> [..., V]`: the product with the transposed word embedding."""
        flat = x.reshape(-1, x.shape[-1]) @ self.word.T.astype(x.dtype)
        return flat.reshape(*x.shape[:-1], -1).astype(jnp.float32)
