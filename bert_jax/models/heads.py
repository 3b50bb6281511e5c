"""Heads: what is put on an encoder, which each receives as a field.

They are those of Devlin et al., 2018, sections 3.1 (pre-training), 4.1 (sequences), 4.2
(spans), 4.4 (choices) and 5.3 (tokens); sentence order is asked by Lan et al., 2019.
`rate` is that of the dropout before the last layer; None takes the encoder's
`hidden_dropout_prob`. `hidden_act` names the activation of the dense layer before it,
as a published config does; `use_bias` and `has_norm` say whether that layer has a bias,
and a norm behind its activation.
"""

import jax
import jax.numpy as jnp
from flax import linen as nn

from bert_jax.models import head_layers, layers


def gather(x: jax.Array, positions: jax.Array) -> jax.Array:
    """`[B, L, D]` at `[B, P]` -> `[B, P, D]`."""
    return jnp.take_along_axis(x, positions[..., None], axis=1)


class Features(nn.Module):
    """The encoder alone: `[B, L] -> [B, L, D]`.

    A published encoder often carries a pooler that nothing here reads; `has_pooler`
    keeps its parameters, so that the model leaves as it came.

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


class Pretraining(nn.Module):
    """Masked LM and a two-way question about each sentence pair (NSP or SOP).

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
          positions: `[B, P]`, where to predict; gathered before the product with the
            vocabulary. None predicts everywhere (P = L).
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
        told = self.hidden_act, self.use_bias, self.decoder_bias
        self.mlm = head_layers.MaskedLMHead(self.encoder.config, *told)

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
        """Logits at `positions` `[B, P]`, or everywhere (P = L) when it is None."""
        inputs = (input_ids, attention_mask, token_type_ids, position_ids)
        x = self.encoder(*inputs, deterministic=deterministic)
        tokens = x if positions is None else gather(x, positions)
        return self.mlm(tokens, self.encoder.attend)


class SequenceClassifier(nn.Module):
    """One answer a sequence: `[B, L] -> float32 [B, C]`; regression with one label.

    >>> head = SequenceClassifier(encoder, num_labels=3)
    >>> logits, tree = jax.eval_shape(head.init_with_output, key, ids)
    >>> logits.shape, sorted(tree["params"])
    ((2, 3), ['classifier', 'encoder', 'pooler'])
    """

    encoder: nn.Module
    num_labels: int
    hidden_act: str = "tanh"
    rate: float | None = None
    drops_input: bool = False  # dropout before the first dense layer too
    problem_type: str | None = None  # as in a published config; None: by the labels
    pooling: str = "cls"  # of `scoring.POOLINGS`
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
    """Which of C sequences is right: `[B, C, L] -> float32 [B, C]`.

    >>> head, choices = MultipleChoice(encoder), jnp.stack([ids, ids, ids], axis=1)
    >>> logits, tree = jax.eval_shape(head.init_with_output, key, choices)
    >>> logits.shape, sorted(tree["params"])
    ((2, 3), ['classifier', 'encoder', 'pooler'])
    """

    encoder: nn.Module
    hidden_act: str = "tanh"
    rate: float | None = None
    drops_input: bool = False
    pooling: str = "cls"  # of `scoring.POOLINGS`
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
    """One answer a token: `[B, L] -> float32 [B, L, C]`.

    >>> head = TokenClassifier(encoder, num_labels=9)
    >>> logits, tree = jax.eval_shape(head.init_with_output, key, ids)
    >>> logits.shape, sorted(tree["params"])
    ((2, 7, 9), ['classifier', 'encoder'])
    """

    encoder: nn.Module
    num_labels: int
    rate: float | None = None
    hidden_act: str | None = None  # None has no dense layer before the last
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
    """Where an answer starts and ends: `[B, L] -> float32 [B, L, 2]`.

    >>> head = SpanClassifier(encoder)
    >>> logits, tree = jax.eval_shape(head.init_with_output, key, ids)
    >>> logits.shape, sorted(tree["params"])
    ((2, 7, 2), ['encoder', 'span'])
    """

    encoder: nn.Module
    rate: float | None = 0.0
    hidden_act: str | None = None  # None has no dense layer before the last
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
    """Was the token replaced (Clark et al., 2020)? `[B, L] -> float32 [B, L]`.

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
    """What stands at some places, asked of the query stream: `float32 [B, P, V]`.

    The encoder is one with two streams, such as `XLNet`.

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
          positions: `[B, P]`, where to predict. None gives the scores of the content
            stream everywhere (P = L), which has seen what stands there.
          perm_mask: `[B, L, L]`, see `XLNet`; None hides the tokens at `positions` from
            all, so that each is predicted from all others.
          deterministic: False draws dropout from the rng named "dropout".
        """
        inputs = (input_ids, attention_mask, token_type_ids, position_ids)
        told = {"perm_mask": perm_mask, "deterministic": deterministic}
        if positions is None:
            return self.mlm(self.encoder(*inputs, **told), self.encoder.attend)
        if perm_mask is None:
            told["perm_mask"] = hidden_from_all(positions, input_ids.shape[1])
        _, x = self.encoder.two_streams(*inputs, positions=positions, **told)
        return self.mlm(x, self.encoder.attend)


def hidden_from_all(positions: jax.Array, length: int) -> jax.Array:
    """The perm_mask bool `[B, L, L]` by which nothing sees what is at `[B, P]`."""
    hidden = (positions[:, :, None] == jnp.arange(length)[None, None]).any(1)
    return jnp.broadcast_to(hidden[:, None], (len(positions), length, length))
