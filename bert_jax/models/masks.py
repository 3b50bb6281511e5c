"""Attention masks: the rule by which tokens see each other."""

import jax
import jax.numpy as jnp
from flax import struct


@struct.dataclass
class Mask:
    """An attention mask.

    Attributes:
      queries: `[B, L]` integers: 0 is padding, and a token sees the tokens whose value
        equals its own. The ordinary 0/1 mask is one case, a row packed with several
        sequences (1 1 1 2 2 0) another. Or `[B, L, M]`, a value for each pair of
        tokens: 0 where the first does not see the second.
      keys: `[B, M]`, the values of the tokens that are looked at; None: `queries`.
      positions: `[B, L]`, by which `window` and `causal` measure; None: 0, 1, 2, ...
      window: the number of positions that a token sees to either side; None: all.
      causal: whether a token sees none of the tokens after its own.
    """

    queries: jax.Array
    keys: jax.Array | None = None
    positions: jax.Array | None = None
    window: int | None = struct.field(pytree_node=False, default=None)
    causal: bool = struct.field(pytree_node=False, default=False)


def visible(mask: jax.Array | Mask) -> jax.Array:
    """The pairs of tokens of which the first sees the second: bool `[B, 1, L, M]`.

    An array is the `queries` of a mask. Padding, which no token sees, sees all of its
    row, as in every published BERT.
    """
    mask = mask if isinstance(mask, Mask) else Mask(mask)
    if mask.queries.ndim == 3:
        return (mask.queries > 0)[:, None]
    queries = mask.queries[:, :, None]
    keys = (mask.queries if mask.keys is None else mask.keys)[:, None, :]
    seen = ((queries == keys) | (queries == 0)) & (keys > 0)
    positions = mask.positions
    positions = jnp.arange(keys.shape[2])[None] if positions is None else positions
    if mask.window is not None:
        seen &= abs(positions[:, None, :] - positions[:, :, None]) <= mask.window
    if mask.causal:
        seen &= positions[:, None, :] <= positions[:, :, None]
    return seen[:, None]
