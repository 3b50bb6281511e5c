"""Which tokens to hide and how: pure functions of (key, ids), made for the device.

Masks are drawn anew every time a row is seen, from the row's place in the stream of
examples: they do not depend on the batch, the micro-batch, or the number of devices
it is split over, and a resumed run draws the same ones.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np


@dataclasses.dataclass
class Masking:
    """How tokens are hidden; the defaults are BERT's (Devlin et al., 2018, A.1).

    Of the chosen tokens, `mask_share` become [MASK], `random_share` a random token
    of the whole vocabulary, and the rest stay; this is drawn for each token by itself,
    also within whole words. `max_predictions` is P, the predictions of one row; None
    takes `rate` of the row length.
    """

    rate: float = 0.15
    max_predictions: int | None = None
    mask_share: float = 0.8
    random_share: float = 0.1
    whole_words: bool = False

    def validate(self) -> None:
        """Raises ValueError with the field, its value and the remedy."""
        if not 0 < self.rate < 1:
            raise ValueError(
                f"masking.rate={self.rate} is not between 0 and 1; BERT uses 0.15"
            )
        shares = self.mask_share, self.random_share
        if min(shares) < 0 or sum(shares) > 1:
            raise ValueError(
                f"masking.mask_share={shares[0]} and masking.random_share={shares[1]} "
                "are not shares of one whole; BERT uses 0.8 and 0.1"
            )
        if self.max_predictions is not None and self.max_predictions < 1:
            raise ValueError(
                f"masking.max_predictions={self.max_predictions}; it must be at least 1"
            )

    def predictions(self, length: int) -> int:
        """P for rows of `length` tokens."""
        return min(self.max_predictions or max(1, round(length * self.rate)), length)

    def counts(self, length: int) -> np.ndarray:
        """How many to predict among 0..length tokens: `[length + 1]`, at most P.

        Google's arithmetic, Python's round-half-even included
        (create_pretraining_data.py): min(P, max(1, round(tokens * rate))).
        """
        most = self.predictions(length)
        some = [
            min(most, max(1, round(tokens * self.rate)))
            for tokens in range(1, length + 1)
        ]
        return np.array([0, *some], np.int32)


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """What masking has to know of a vocabulary.

    `protected` are the ids never chosen ([PAD], [CLS], [SEP]); `is_continuation`
    `[V]` marks the pieces that continue a word (`##ing`).
    """

    size: int
    mask_id: int
    protected: tuple[int, ...]
    is_continuation: np.ndarray | None = None


def mask_tokens(
    key: jax.Array,
    examples: jax.Array,
    input_ids: jax.Array,
    attention_mask: jax.Array,
    masking: Masking,
    vocabulary: Vocabulary,
) -> dict[str, jax.Array]:
    """Hides tokens of a batch.

    Args:
      key: the key of the run.
      examples: `[B]`, the number of each row in the stream of examples.
      input_ids, attention_mask: `[B, L]`; 0 in the mask is padding.
      masking: how.
      vocabulary: of what.

    Returns:
      `input_ids` `[B, L]` with tokens hidden, and `positions`, `labels`, `weights`
      `[B, P]`: where, what stood there, and 1 where there is a prediction at all.
    """
    counts = masking.counts(input_ids.shape[1])
    tokens = jnp.sum(attention_mask > 0, axis=1)
    candidates = attention_mask > 0
    for token in vocabulary.protected:
        candidates &= input_ids != token
    mask_row = functools.partial(
        _mask_row,
        most=masking.predictions(input_ids.shape[1]),
        masking=masking,
        vocabulary=vocabulary,
    )
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, examples)
    return jax.vmap(mask_row)(keys, input_ids, candidates, jnp.asarray(counts)[tokens])


def _mask_row(key, ids, candidates, count, *, most, masking, vocabulary):
    which, how, what = jax.random.split(key, 3)
    scores = jnp.where(candidates, jax.random.uniform(which, ids.shape), -1)
    if masking.whole_words:
        starts = word_starts(ids, candidates, vocabulary.is_continuation)
        scores = jnp.where(choose_words(scores, starts, candidates, count), 1, -1)
    best, positions = jax.lax.top_k(scores, most)
    weights = (best >= 0) & (jnp.arange(most) < count)
    labels = ids[positions]
    draw = jax.random.uniform(how, (most,))
    others = jax.random.randint(what, (most,), 0, vocabulary.size, ids.dtype)
    hidden = jnp.where(draw < masking.mask_share + masking.random_share, others, labels)
    hidden = jnp.where(draw < masking.mask_share, vocabulary.mask_id, hidden)
    return {
        "input_ids": ids.at[positions].set(jnp.where(weights, hidden, labels)),
        "positions": positions,
        "labels": labels,
        "weights": weights.astype(jnp.float32),
    }


def word_starts(
    ids: jax.Array, candidates: jax.Array, is_continuation: np.ndarray
) -> jax.Array:
    """True where a word begins, `[L]`; a piece after [CLS] or [SEP] begins one."""
    after_special = ~jnp.concatenate([jnp.array([False]), candidates[:-1]])
    return candidates & (~jnp.asarray(is_continuation)[ids] | after_special)


def choose_words(
    scores: jax.Array, starts: jax.Array, candidates: jax.Array, count: jax.Array
) -> jax.Array:
    """Whole words in random order until `count` tokens are chosen: bool `[L]`.

    A word that would overflow is skipped, not cut, and shorter ones behind it may
    still fit: google-research/bert's rule.
    """
    word = jnp.cumsum(starts) - 1
    length = scores.shape[0]
    sizes = jnp.zeros(length, jnp.int32).at[word].add(candidates)
    first = jnp.nonzero(starts, size=length, fill_value=length)[0]
    order = jnp.argsort(-scores.at[first].get(mode="fill", fill_value=-1))

    def visit(total, size):
        take = (size > 0) & (total + size <= count)
        return total + size * take, take

    _, taken = jax.lax.scan(visit, jnp.int32(0), sizes[order])
    return jnp.zeros(length, bool).at[order].set(taken)[word] & candidates
