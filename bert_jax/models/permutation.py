"""The head of permutation language models (Yang et al., 2019, section 2.3)."""

import jax
import jax.numpy as jnp
from flax import linen as nn

from bert_jax.models import scoring


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
        self.mlm = scoring.LMHead(self.encoder.config)

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
