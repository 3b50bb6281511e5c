"""Attention by content, distance and segment, as in XLNet (Yang et al., 2019)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from bert_jax.models import layers, masks


class Seen(NamedTuple):
    """The keys that queries see, the same in every layer.

    Attributes:
      visible: bool `[B, L, M]`, True where a query sees a key.
      other: bool `[B, L, M]`, True where they are in different segments.
      positions: `[B, L]`, the positions of the queries in the row; None: 0, 1, 2, ...
    """

    visible: jax.Array
    other: jax.Array
    positions: jax.Array | None = None

    def at(self, positions: jax.Array) -> "Seen":
        """The same for the queries at `positions` `[B, P]`."""

        def rows(x):
            return jnp.take_along_axis(x, positions[:, :, None], axis=1)

        return Seen(rows(self.visible), rows(self.other), positions)

    def with_itself(self) -> "Seen":
        """The same, but every query also sees its own position."""
        L, M = self.visible.shape[1:]
        own = jnp.eye(L, M, M - L, dtype=bool)
        return self._replace(visible=self.visible | own[None])


def visible(
    shape: tuple[int, int],
    attention_mask: jax.Array | None = None,
    perm_mask: jax.Array | None = None,
    memory: int = 0,
) -> jax.Array:
    """The positions that see each other, before each sees itself: bool `[B, L, M + L]`.

    Args:
      shape: B and L.
      attention_mask: `[B, L]`, see `masks.visible`; None for no padding.
      perm_mask: `[B, L, L]`, not 0 where i does not see j; None: all see all.
      memory: M; every position sees all of it.
    """
    B, L = shape
    seen = jnp.ones((B, L, L), bool)
    if attention_mask is not None:
        seen &= masks.visible(attention_mask)[:, 0]
    if perm_mask is not None:
        seen &= perm_mask == 0
    return jnp.pad(seen, ((0, 0), (0, 0), (memory, 0)), constant_values=True)


def before(length: int, memory: int, same_length: bool) -> jax.Array:
    """The keys before each query, and its own: bool `[L, M + L]`.

    With `same_length` every query sees the same number, as in Transformer-XL's
    evaluation.
    """
    query, key = jnp.arange(length)[:, None], jnp.arange(memory + length)[None]
    seen = key <= query + memory
    return seen & (key >= query) if same_length else seen


def other_segment(token_type_ids: jax.Array, memory: int) -> jax.Array:
    """The keys of another segment, bool `[B, L, M + L]`; memory is in segment 0."""
    types = jnp.pad(token_type_ids, ((0, 0), (memory, 0)))
    return token_type_ids[:, :, None] != types[:, None]


class Keys(NamedTuple):
    """Keys and values `[B, M, H, K]`, and keys of distances `[R, H, K]`.

    All streams of a layer share them.
    """

    content: jax.Array
    value: jax.Array
    distance: jax.Array


# Arrays of a known length are constants, which NumPy computes as the published models
# had them; those of a length that an exported program leaves open are JAX's.
Array = np.ndarray | jax.Array


def distances(length: int, keys: int, clamp_len: int) -> Array:
    """The distances of keys before queries: `[L + M]`, M, M - 1, ..., 1 - L."""
    is_open = not isinstance(length, int)
    all_distances = keys - (jnp if is_open else np).arange(keys + length)
    if clamp_len <= 0:
        return all_distances
    return all_distances.clip(-clamp_len, clamp_len)


def sinusoids(distances: Array, features: int) -> Array:
    """Sines, then cosines, of distances: float32 `[R, features]`.

    All in float32, as the published models were trained.
    """
    exponents = np.arange(0, features, 2, dtype=np.float32) / np.float32(features)
    frequencies = 1 / np.float32(10000) ** exponents
    angles = distances.astype(np.float32)[:, None] * frequencies[None]
    numpy = np if isinstance(distances, np.ndarray) else jnp
    return numpy.concatenate([numpy.sin(angles), numpy.cos(angles)], axis=1)


def by_key(scores: jax.Array, keys: int, positions: jax.Array | None) -> jax.Array:
    """Scores by distance `[B, H, L, R]` -> by key `[B, H, L, M]`.

    The score of query i and key j is at L - i + j. If the positions of queries are
    0, 1, 2, ..., reading the flat scores in rows of one number less aligns the keys
    (Dai et al., 2019, appendix B); otherwise each row is sliced by itself.
    """
    B, H, L, R = scores.shape
    if positions is None:
        flat = scores.reshape(B, H, L * R)[..., L:]
        return flat.reshape(B, H, L, R - 1)[..., :keys]

    def window(x, start):
        return jax.lax.dynamic_slice_in_dim(x, start, keys, axis=1)

    return jax.vmap(jax.vmap(window, (1, 0), 1))(scores, R - keys - positions)


class RelativeAttention(nn.Module):
    """A layer's attention; its streams share one set of keys.

    A score is the sum of three products with the query: of the key's content, of its
    distance, and of whether it is of another segment; each has a bias of its own (Dai
    et al., 2019, section 3.3; Yang et al., 2019, section 2.5).
    """

    num_heads: int
    features: int
    rate: float = 0.0
    stddev: float = 0.02
    dtype: str = "float32"

    def setup(self):
        def parameter(name, *shape):
            init = layers.kernel_init(self.stddev)
            return self.param(name, init, (*shape, self.features))

        dense = self.features, self.stddev, self.dtype, False
        self.query = layers.Dense(*dense)
        self.key = layers.Dense(*dense)
        self.value = layers.Dense(*dense)
        self.distance = layers.Dense(*dense)
        self.out = layers.Dense(*dense)
        self.content_bias = parameter("content_bias")
        self.distance_bias = parameter("distance_bias")
        self.segment_bias = parameter("segment_bias")
        self.segment = parameter("segment", 2)
        self.dropout = layers.Dropout(self.rate)

    def keys(self, x: jax.Array, table: jax.Array) -> Keys:
        """The keys of hidden states `[B, M, D]` and a table of distances `[R, D]`."""
        projected = self.key(x), self.value(x), self.distance(table)
        return Keys(*map(self._split_heads, projected))

    def __call__(
        self, x: jax.Array, keys: Keys, seen: Seen, *, deterministic: bool = True
    ) -> jax.Array:
        """Attention of queries `[B, L, D]`: `[B, L, D]`."""
        weights = self._weights(self._split_heads(self.query(x)), keys, seen)
        if self.is_mutable_collection("intermediates"):
            self.sow("intermediates", "weights", weights)
        weights = self.dropout(weights.astype(keys.value.dtype), deterministic)
        y = jnp.einsum("BHLM,BMHK->BLHK", weights, keys.value)
        return self.out(y.reshape(x.shape))

    def _weights(self, query, keys, seen):
        """float32 `[B, H, L, M]`; rows sum to 1."""
        content = self._biased(query, self.content_bias)
        distance = self._biased(query, self.distance_bias)
        kind = self._biased(query, self.segment_bias)
        scores = jnp.einsum("BLHK,BMHK->BHLM", content, keys.content)
        far = jnp.einsum("BLHK,RHK->BHLR", distance, keys.distance)
        scores += by_key(far, scores.shape[-1], seen.positions)
        segment = self._split_heads(self.segment).astype(query.dtype)
        same, other = jnp.split(jnp.einsum("BLHK,SHK->BHLS", kind, segment), 2, axis=-1)
        scores += jnp.where(seen.other[:, None], other, same)
        # The lowest finite number, not -inf: a query that sees nothing must not be NaN.
        low = jnp.finfo(jnp.float32).min
        scores = jnp.where(seen.visible[:, None], scores.astype(jnp.float32), low)
        return jax.nn.softmax(scores)

    def _biased(self, query, bias):
        heads = self._split_heads(bias[None, None]).astype(query.dtype)
        return (query + heads) * query.shape[-1] ** -0.5

    def _split_heads(self, x):
        return x.reshape(*x.shape[:-1], self.num_heads, -1)
