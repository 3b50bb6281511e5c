"""Heads: modules with an encoder as a field, which compute scores from its output.

They are those of Devlin et al., 2018, sections 3.1 (pre-training), 4.1 (sequences), 4.2
(spans), 4.4 (choices) and 5.3 (tokens); sentence order is that of Lan et al., 2019.
`rate` is the rate of dropout before the last layer; None takes the encoder's
`hidden_dropout_prob`. `hidden_act` is the name of the activation after the dense layer
before that; `use_bias` gives this layer a bias, `has_norm` a norm after its activation.
"""

import jax
import jax.numpy as jnp
from flax import linen as nn

from bert_jax.models import head_layers, layers, pooling


def gather(x: jax.Array, positions: jax.Array) -> jax.Array:
    """`[B, L, D]` at `[B, P]` -> `[B, P, D]`."""
    return jnp.take_along_axis(x, positions[..., None], axis=1)


class Features(nn.Module):
    """The encoder alone: `[B, L] -> [B, L, D]`.

    A published encoder often has a pooler that nothing here reads; `has_pooler` keeps
    its parameters, so that a model is saved as it was loaded.

    >>> head = Features(encoder, has_pooler=True)
    >>> x, tree = jax.eval_shape(head.init_with_output, key, ids)
    >>> x.shape, sorted(tree["params"])
    ((2, 7, 12), ['encoder', 'pooler'])
    """

    encoder: nn.Module
    has_pooler: bool = False

    def setup(self):
        c = self.encoder.config
        if self.has_pooler:
            self.pooler = layers.Dense(c.hidden_size, c.initializer_range, c.dtype)

    def __call__(
        self,
        input_ids: jax.Array,
        attention_mask: jax.Array | None = None,
        token_type_ids: jax.Array | None = None,
        position_ids: jax.Array | None = None,
        *,
        deterministic: bool = True,
    ) -> jax.Array:
        """Hidden states of the last layer, float32 `[B, L, D]`."""
        inputs = (input_ids, attention_mask, token_type_ids, position_ids)
        x = self.encoder(*inputs, deterministic=deterministic)
        if self.has_pooler and self.is_initializing():
            self.pooler(x[:, 0])
        return x.astype(jnp.float32)


class SentenceEncoder(nn.Module):
    """One vector a row, for training: `[B, L] -> float32 [B, E]`.

    A trained one is used as `Features` with a `pretrained.Pooling`.

    Attributes:
      modes: of pooling, see `pooling.MODES`; the vectors of several are concatenated.
      dense: the width and the activation of each dense layer on the pooled vector.
      normalize: True scales vectors to length 1.

    Raises ValueError for an unknown mode.

    >>> head = SentenceEncoder(encoder, dense=((8, "Tanh"),))
    >>> x, tree = jax.eval_shape(head.init_with_output, key, ids)
    >>> x.shape, sorted(tree["params"])
    ((2, 8), ['dense_0', 'encoder'])
    """

    encoder: nn.Module
    modes: tuple[str, ...] = ("mean",)
    dense: tuple[tuple[int, str], ...] = ()
    normalize: bool = True

    @nn.compact
    def __call__(
        self,
        input_ids: jax.Array,
        attention_mask: jax.Array | None = None,
        token_type_ids: jax.Array | None = None,
        position_ids: jax.Array | None = None,
        *,
        pooling_mask: jax.Array | None = None,
        deterministic: bool = True,
    ) -> jax.Array:
        """Vectors; `pooling_mask` `[B, L]` has the tokens to pool, None: all."""
        pooling.check_modes(self.modes)
        inputs = (input_ids, attention_mask, token_type_ids, position_ids)
        x = self.encoder(*inputs, deterministic=deterministic).astype(jnp.float32)
        width, dense = len(self.modes) * x.shape[-1], []
        for i, (features, activation) in enumerate(self.dense):
            layer = PooledDense(features, name=f"dense_{i}")
            dense.append(pooling.Dense(*layer(width), activation))
            width = features
        mask = attention_mask if pooling_mask is None else pooling_mask
        return pooling.sentence_vectors(x, mask, self.modes, dense, self.normalize)


class PooledDense(nn.Module):
    """The parameters of a dense layer on pooled vectors: kernel and bias.

    The kernel starts as a random projection, which keeps lengths and angles on average
    (Johnson and Lindenstrauss, 1984).
    """

    features: int

    @nn.compact
    def __call__(self, width: int) -> tuple[jax.Array, jax.Array]:
        shape = (width, self.features)
        init = nn.initializers.normal(self.features**-0.5)
        kernel = self.param("kernel", init, shape)
        return kernel, self.param("bias", nn.initializers.zeros, (self.features,))


class Pretraining(nn.Module):
    """Masked LM, and a classifier of each sentence pair in two classes (NSP or SOP).

    >>> logits, tree = jax.eval_shape(Pretraining(encoder).init_with_output, key, ids)
    >>> [x.shape for x in logits], sorted(tree["params"])
    ([(2, 7, 31), (2, 2)], ['encoder', 'mlm', 'pair', 'pooler'])
    """

    encoder: nn.Module

    def setup(self):
        c = self.encoder.config
        self.mlm = head_layers.MaskedLMHead(c)
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
          positions: `[B, P]`, the tokens to predict; gathered before the product with
            the vocabulary. None predicts all (P = L).
          cls_positions: `[B, S]`, the [CLS] of each packed sequence; None reads the
            first token of the row.
          deterministic: False draws dropout from the rng named "dropout".

        Returns:
          float32 logits `[B, P, V]` of the tokens and `[B, S, 2]` of the pairs
          (`[B, 2]` without `cls_positions`); label 0 is "in order".
        """
        inputs = (input_ids, attention_mask, token_type_ids, position_ids)
        x = self.encoder(*inputs, deterministic=deterministic)
        first = x[:, 0] if cls_positions is None else gather(x, cls_positions)
        tokens = x if positions is None else gather(x, positions)
        pooled = jnp.tanh(self.pooler(first)).astype(jnp.float32)
        return self.mlm(tokens, self.encoder.attend), self.pair(pooled)


class MaskedLM(nn.Module):
    """Masked LM alone: `[B, L] -> float32 [B, P, V]`.

    >>> head, where = MaskedLM(encoder), jnp.array([[3, 6], [1, 2]])
    >>> logits, tree = jax.eval_shape(head.init_with_output, key, ids, positions=where)
    >>> logits.shape, sorted(tree["params"])
    ((2, 2, 31), ['encoder', 'mlm'])
    """

    encoder: nn.Module
    hidden_act: str | None = None  # RoBERTa and ELECTRA: "gelu", whatever the encoder's
    use_bias: bool = True
    decoder_bias: bool = True

    def setup(self):
        self.mlm = head_layers.MaskedLMHead(
            self.encoder.config, self.hidden_act, self.use_bias, self.decoder_bias
        )

    def __call__(
        self,
        input_ids: jax.Array,
        attention_mask: jax.Array | None = None,
        token_type_ids: jax.Array | None = None,
        position_ids: jax.Array | None = None,
        *,
        positions: jax.Array | None = None,
        deterministic: bool = True,
    ) -> jax.Array:
        """Logits at `positions` `[B, P]`, or of all tokens (P = L) if it is None."""
        inputs = (input_ids, attention_mask, token_type_ids, position_ids)
        x = self.encoder(*inputs, deterministic=deterministic)
        tokens = x if positions is None else gather(x, positions)
        return self.mlm(tokens, self.encoder.attend)


class SequenceClassifier(nn.Module):
    """Scores of a sequence: `[B, L] -> float32 [B, C]`; regression with one label.

    >>> head = SequenceClassifier(encoder, num_labels=3)
    >>> logits, tree = jax.eval_shape(head.init_with_output, key, ids)
    >>> logits.shape, sorted(tree["params"])
    ((2, 3), ['classifier', 'encoder', 'pooler'])
    """

    encoder: nn.Module
    num_labels: int
    hidden_act: str | None = "tanh"  # None: the last layer reads the pooled vector
    rate: float | None = None
    drops_input: bool = False  # dropout also before the first dense layer
    problem_type: str | None = None  # as in a published config; None: from the labels
    pooling: str = "cls"  # see `head_layers.pool_row`
    use_bias: bool = True
    has_norm: bool = False

    @nn.compact
    def __call__(
        self,
        input_ids: jax.Array,
        attention_mask: jax.Array | None = None,
        token_type_ids: jax.Array | None = None,
        position_ids: jax.Array | None = None,
        *,
        deterministic: bool = True,
    ) -> jax.Array:
        """Logits, or values for regression. Raises ValueError for unknown pooling."""
        inputs = (input_ids, attention_mask, token_type_ids, position_ids)
        x = self.encoder(*inputs, deterministic=deterministic)
        return head_layers.score_row(
            self, x, attention_mask, self.num_labels, deterministic
        )


class MultipleChoice(nn.Module):
    """Scores of C sequences, of which one is right: `[B, C, L] -> float32 [B, C]`.

    >>> head, choices = MultipleChoice(encoder), jnp.stack([ids, ids, ids], axis=1)
    >>> logits, tree = jax.eval_shape(head.init_with_output, key, choices)
    >>> logits.shape, sorted(tree["params"])
    ((2, 3), ['classifier', 'encoder', 'pooler'])
    """

    encoder: nn.Module
    hidden_act: str | None = "tanh"  # None: the last layer reads the pooled vector
    rate: float | None = None
    drops_input: bool = False
    pooling: str = "cls"  # see `head_layers.pool_row`
    use_bias: bool = True
    has_norm: bool = False

    @nn.compact
    def __call__(
        self,
        input_ids: jax.Array,
        attention_mask: jax.Array | None = None,
        token_type_ids: jax.Array | None = None,
        position_ids: jax.Array | None = None,
        *,
        deterministic: bool = True,
    ) -> jax.Array:
        """A logit for each choice; all inputs are `[B, C, L]`.

        Raises ValueError for unknown pooling.
        """
        inputs = (input_ids, attention_mask, token_type_ids, position_ids)
        rows = [None if x is None else x.reshape(-1, x.shape[-1]) for x in inputs]
        x = self.encoder(*rows, deterministic=deterministic)
        scores = head_layers.score_row(self, x, rows[1], 1, deterministic)
        return scores.reshape(input_ids.shape[:-1])


class TokenClassifier(nn.Module):
    """Scores of each token: `[B, L] -> float32 [B, L, C]`.

    >>> head = TokenClassifier(encoder, num_labels=9)
    >>> logits, tree = jax.eval_shape(head.init_with_output, key, ids)
    >>> logits.shape, sorted(tree["params"])
    ((2, 7, 9), ['classifier', 'encoder'])
    """

    encoder: nn.Module
    num_labels: int
    rate: float | None = None
    hidden_act: str | None = None  # None: no dense layer before the last
    use_bias: bool = True
    has_norm: bool = False

    @nn.compact
    def __call__(
        self,
        input_ids: jax.Array,
        attention_mask: jax.Array | None = None,
        token_type_ids: jax.Array | None = None,
        position_ids: jax.Array | None = None,
        *,
        deterministic: bool = True,
    ) -> jax.Array:
        """Logits `[B, L, C]`."""
        inputs = (input_ids, attention_mask, token_type_ids, position_ids)
        x = self.encoder(*inputs, deterministic=deterministic)
        return head_layers.score_each(
            self, "classifier", x, self.num_labels, deterministic
        )


class SpanClassifier(nn.Module):
    """Scores of the start and the end of an answer: `[B, L] -> float32 [B, L, 2]`.

    >>> head = SpanClassifier(encoder)
    >>> logits, tree = jax.eval_shape(head.init_with_output, key, ids)
    >>> logits.shape, sorted(tree["params"])
    ((2, 7, 2), ['encoder', 'span'])
    """

    encoder: nn.Module
    rate: float | None = 0.0
    hidden_act: str | None = None  # None: no dense layer before the last
    use_bias: bool = True
    has_norm: bool = False

    @nn.compact
    def __call__(
        self,
        input_ids: jax.Array,
        attention_mask: jax.Array | None = None,
        token_type_ids: jax.Array | None = None,
        position_ids: jax.Array | None = None,
        *,
        deterministic: bool = True,
    ) -> jax.Array:
        """Logits of "starts here" and "ends here"."""
        inputs = (input_ids, attention_mask, token_type_ids, position_ids)
        x = self.encoder(*inputs, deterministic=deterministic)
        return head_layers.score_each(self, "span", x, 2, deterministic)


class ReplacedTokenDetection(nn.Module):
    """Scores of replaced tokens (Clark et al., 2020): `[B, L] -> float32 [B, L]`.

    >>> head = ReplacedTokenDetection(encoder)
    >>> logits, tree = jax.eval_shape(head.init_with_output, key, ids)
    >>> logits.shape, sorted(tree["params"])
    ((2, 7), ['encoder', 'replaced', 'transform'])
    """

    encoder: nn.Module

    @nn.compact
    def __call__(
        self,
        input_ids: jax.Array,
        attention_mask: jax.Array | None = None,
        token_type_ids: jax.Array | None = None,
        position_ids: jax.Array | None = None,
        *,
        deterministic: bool = True,
    ) -> jax.Array:
        """A logit for each token; above 0 means replaced."""
        c = self.encoder.config
        inputs = (input_ids, attention_mask, token_type_ids, position_ids)
        x = self.encoder(*inputs, deterministic=deterministic)
        dense = layers.Dense(
            c.hidden_size, c.initializer_range, c.dtype, name="transform"
        )
        x = layers.ACTIVATIONS[c.hidden_act](dense(x)).astype(jnp.float32)
        return layers.Dense(1, c.initializer_range, name="replaced")(x)[..., 0]


class PermutationLM(nn.Module):
    """Scores of the words at some positions, by the query stream: float32 `[B, P, V]`.

    The encoder has two streams, as `XLNet` has.

    >>> from bert_jax.models import XLNetConfig
    >>> head = PermutationLM(XLNetConfig(31, 12, n_layer=1, n_head=3).build())
    >>> where = jnp.array([[3, 6], [1, 2]])
    >>> jax.eval_shape(head.init_with_output, key, ids, positions=where)[0].shape
    (2, 2, 31)
    """

    encoder: nn.Module

    def setup(self):
        self.mlm = head_layers.LMHead(self.encoder.config)

    def __call__(
        self,
        input_ids: jax.Array,
        attention_mask: jax.Array | None = None,
        token_type_ids: jax.Array | None = None,
        position_ids: jax.Array | None = None,
        *,
        positions: jax.Array | None = None,
        perm_mask: jax.Array | None = None,
        deterministic: bool = True,
    ) -> jax.Array:
        """Scores words.

        Args:
          input_ids, attention_mask, token_type_ids, position_ids: `[B, L]`, see `Bert`.
          positions: `[B, P]`, the tokens to predict. None scores all tokens (P = L) by
            the content stream, which has seen them.
          perm_mask: `[B, L, L]`, see `XLNet`; None hides the tokens at `positions` from
            all, so that they are predicted from the others.
          deterministic: False draws dropout from the rng named "dropout".
        """
        inputs = (input_ids, attention_mask, token_type_ids, position_ids)
        if positions is not None and perm_mask is None:
            perm_mask = hidden_from_all(positions, input_ids.shape[1])
        options = {"perm_mask": perm_mask, "deterministic": deterministic}
        if positions is None:
            return self.mlm(self.encoder(*inputs, **options), self.encoder.attend)
        _, x = self.encoder.two_streams(*inputs, positions=positions, **options)
        return self.mlm(x, self.encoder.attend)


def hidden_from_all(positions: jax.Array, length: int) -> jax.Array:
    """The perm_mask, bool `[B, L, L]`, that hides the tokens at `[B, P]` from all."""
    hidden = (positions[:, :, None] == jnp.arange(length)[None, None]).any(1)
    return jnp.broadcast_to(hidden[:, None], (len(positions), length, length))
