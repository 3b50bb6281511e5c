"""Which tokens to predict, and in which order: permutation language modelling.

Pure functions of (key, ids), made for the device. As in `masking`, everything is drawn
from a row's place in the stream of examples: it depends neither on the batch nor on the
devices it is split over, and a resumed run draws the same.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.objectives.masking import Vocabulary, word_starts


@dataclasses.dataclass
class Permutation:
    """What is predicted of a row; the defaults are XLNet's (Yang et al., 2019, 2.3).

    One of `one_in` tokens, K in the paper, most in spans of up to `ngram`: n tokens
    from the start of a word on, with a probability proportional to 1 / n, and K n
    tokens of context around them. What spans leave to be predicted are single tokens,
    as in the paper's code (zihangdai/xlnet, `_sample_mask`). `max_predictions` is P,
    the predictions of one row; None takes the row length / K.
    """

    one_in: int = 6
    ngram: int = 5
    max_predictions: int | None = None

    def validate(self) -> None:
        """Raises ValueError with the field, its value and the remedy."""
        if self.one_in < 2:
            raise ValueError(
                f"permutation.one_in={self.one_in} leaves no token to see; it must be "
                "at least 2 (XLNet uses 6)"
            )
        if self.ngram < 1:
            raise ValueError(
                f"permutation.ngram={self.ngram}; it must be at least 1 (XLNet uses 5)"
            )
        if self.max_predictions is not None and self.max_predictions < 1:
            raise ValueError(
                f"permutation.max_predictions={self.max_predictions}; it must be at "
                "least 1"
            )

    def predictions(self, length: int) -> int:
        """P for rows of `length` tokens."""
        return min(self.max_predictions or max(1, length // self.one_in), length)

    def counts(self, length: int) -> np.ndarray:
        """How many to predict among 0..length tokens: `[length + 1]`, at most P."""
        some = np.maximum(np.arange(length + 1) // self.one_in, 1)
        some[0] = 0
        return np.minimum(some, self.predictions(length)).astype(np.int32)


def permute_tokens(
    key: jax.Array,
    examples: jax.Array,
    input_ids: jax.Array,
    attention_mask: jax.Array,
    permutation: Permutation,
    vocabulary: Vocabulary,
) -> dict[str, jax.Array]:
    """Chooses and orders the tokens of a batch.

    Args:
      key: the key of the run.
      examples: `[B]`, the number of each row in the stream of examples.
      input_ids, attention_mask: `[B, L]`; 0 in the mask is padding, and tokens of one
        value are a sequence.
      permutation: how.
      vocabulary: of what.

    Returns:
      `perm_mask` bool `[B, L, L]`, see the function of this name, and `positions`,
      `labels`, `weights` `[B, P]`: where, what stands there, and 1 where there is a
      prediction at all.
    """
    length = input_ids.shape[1]
    permute_row = functools.partial(
        _permute_row,
        most=permutation.predictions(length),
        counts=jnp.asarray(permutation.counts(length)),
        permutation=permutation,
        vocabulary=vocabulary,
    )
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, examples)
    return jax.vmap(permute_row)(keys, input_ids, attention_mask)


def _permute_row(key, ids, mask, *, most, counts, permutation, vocabulary):
    spans, rest, ordering = jax.random.split(key, 3)
    candidates = mask > 0
    for token in vocabulary.protected:
        candidates &= ids != token
    count = counts[jnp.sum(mask > 0)]
    starts = word_starts(ids, candidates, vocabulary.is_continuation)
    chosen = choose_spans(spans, starts, candidates, count, most, permutation)
    scores = jnp.where(candidates, jax.random.uniform(rest, ids.shape), -1)
    best, positions = jax.lax.top_k(jnp.where(chosen, 2, scores), most)
    weights = (best >= 0) & (jnp.arange(most) < count)
    predicted = jnp.zeros(ids.shape, bool).at[positions].set(weights)
    order = jax.random.permutation(ordering, len(ids))
    hidden = perm_mask(order, predicted, (mask > 0) & ~candidates)
    # Where nothing is seen, attention would be to everything.
    sees = ((mask[:, None] == mask[None]) & ~hidden).any(1)
    return {
        "perm_mask": hidden,
        "positions": positions,
        "labels": ids[positions],
        "weights": (weights & sees[positions]).astype(jnp.float32),
    }


def perm_mask(
    order: jax.Array, predicted: jax.Array, functional: jax.Array
) -> jax.Array:
    """True where token i does not see token j: bool `[L, L]`.

    Every token sees the context, which is what is neither predicted nor functional; it
    comes first, in no order, and sees nothing else. After it a token sees those before
    it in `order`, and itself unless it is predicted. (Encoders let the content stream
    see itself all the same.)

    Args:
      order: `[L]`, distinct numbers.
      predicted: bool `[L]`.
      functional: bool `[L]`, [CLS] and [SEP], which have a place in the order too and
        are not predicted, as in zihangdai/xlnet's `_local_perm`.

    >>> order, predicted = jnp.array([3, 0, 1, 2]), jnp.array([1, 0, 1, 0]) > 0
    >>> perm_mask(order, predicted, jnp.zeros(4, bool)).astype(int)
    Array([[1, 0, 0, 0],
           [1, 0, 1, 0],
           [1, 0, 1, 0],
           [1, 0, 1, 0]], dtype=int32)
    """
    ordered = predicted | functional
    last = jnp.where(ordered, order, order.min() - 1)
    later = last[:, None] <= last[None]
    own = jnp.eye(len(order), dtype=bool) & ~predicted[:, None]
    return later & ~own & ordered[None]


def choose_spans(
    key: jax.Array,
    starts: jax.Array,
    candidates: jax.Array,
    count: jax.Array,
    most: int,
    permutation: Permutation,
) -> jax.Array:
    """Spans from left to right, `count` tokens at most: bool `[L]`.

    A span begins with a word and ends before what cannot be predicted. Each has around
    it `one_in` times its size that is not chosen, cut into left and right anywhere; the
    row may end before `count` is reached.

    Args:
      key: of sizes and places.
      starts, candidates: bool `[L]`: where a word begins, what can be predicted.
      count, most: how many to choose, and the most that may be.
      permutation: its `one_in` and `ngram`.
    """
    length, places = len(starts), jnp.arange(len(starts))
    next_start = _next(starts)
    wall = _next(~candidates)
    draws = jax.random.uniform(key, (2, most))
    shares = np.cumsum(1 / np.arange(1, permutation.ngram + 1))
    sizes = 1 + jnp.searchsorted(jnp.asarray(shares[:-1] / shares[-1]), draws[0])

    def visit(state, drawn):
        cursor, total = state
        size = jnp.minimum(drawn[0], count - total)
        context = permutation.one_in * size
        left = (drawn[1] * (context + 1)).astype(jnp.int32)
        begin = next_start.at[cursor + left].get(mode="fill", fill_value=length)
        end = wall.at[begin].get(mode="fill", fill_value=length)
        end = jnp.minimum(end, begin + size)
        return (end + context - left, total + end - begin), (begin, end)

    nothing = jnp.int32(0), jnp.int32(0)
    _, (begin, end) = jax.lax.scan(visit, nothing, (sizes, draws[1]))
    inside = (begin[:, None] <= places[None]) & (places[None] < end[:, None])
    return inside.any(0)


def _next(marks):
    """The first mark from each place on: `[L]`, L where there is none."""
    length = len(marks)
    found = jnp.where(marks, jnp.arange(length, dtype=jnp.int32), length)
    return jax.lax.cummin(found, reverse=True)
