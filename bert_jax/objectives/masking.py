"""Token masking: pure functions of (key, ids) that run on the device.

A row gets a new mask each time it is visited, drawn from its position in the stream of
examples. So masks do not depend on the batch, the micro-batch or the number of devices
a batch is split over, and a resumed run draws the same ones. Static masks are drawn
from the number of the row in the data.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np


@dataclasses.dataclass
class Masking:
    """Masking settings; the defaults are BERT's (Devlin et al., 2018, A.1).

    Attributes:
      rate: the share of the tokens that are chosen for prediction.
      max_predictions: P, the predictions of one row; None takes `rate` of its length.
      mask_share, random_share: of the chosen tokens, the share that becomes [MASK] and
        the share that becomes a random token of the whole vocabulary; the rest keep
        their id. This is drawn for each token, also within whole words.
      whole_words: mask either all pieces of a word or none.
      ngram: mask up to this many neighbouring words (without `whole_words`, tokens)
        together: n of them with a probability proportional to 1 / n (Lan et al., 2019,
        section 4.1; ALBERT uses 3).
      dynamic: draw a new mask at each visit of a row; False masks the same tokens of a
        row at every visit, as in the data of the BERT paper.

    >>> Masking().predictions(128), Masking(max_predictions=20).predictions(512)
    (19, 20)
    """

    rate: float = 0.15
    max_predictions: int | None = None
    mask_share: float = 0.8
    random_share: float = 0.1
    whole_words: bool = False
    ngram: int = 1
    dynamic: bool = True

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
        if self.ngram < 1:
            raise ValueError(
                f"masking.ngram={self.ngram}; it must be at least 1, which hides units "
                "one by one (ALBERT uses 3)"
            )

    def predictions(self, length: int) -> int:
        """P for rows of `length` tokens."""
        return min(self.max_predictions or max(1, round(length * self.rate)), length)

    def counts(self, length: int) -> np.ndarray:
        """Predictions among 0, 1, ..., length tokens: `[length + 1]`, at most P.

        min(P, max(1, round(tokens * rate))), where round is Python's round-half-even,
        as in google-research/bert's create_pretraining_data.py.

        >>> Masking().counts(12)
        array([0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2], dtype=int32)
        """
        limit = self.predictions(length)
        counts = [
            min(limit, max(1, round(tokens * self.rate)))
            for tokens in range(1, length + 1)
        ]
        return np.array([0, *counts], np.int32)


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """Properties of a vocabulary that masking needs.

    `protected` are the ids that are never masked ([PAD], [CLS], [SEP]), and
    `is_continuation` `[V]` marks the pieces that continue a word (`##ing`).

    >>> t = tokenizer
    >>> Vocabulary(t.vocab_size, t.mask_id, t.special_ids, t.is_continuation).protected
    (0, 2, 3, 4)
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
    """Masks tokens of a batch.

    Args:
      key: the key of the run.
      examples: `[B]` or `[B, 2]`, see `row_keys`: numbers that each row's mask is drawn
        from, together with `key`: the position in the stream of examples, or for static
        masks the row number.
      input_ids, attention_mask: `[B, L]`; 0 in the mask is padding.
      masking: the settings.
      vocabulary: of the ids.

    Returns:
      `input_ids` `[B, L]` with masked tokens, and `positions`, `labels`, `weights`
      `[B, P]`: the position and the original id of each prediction, and 1 where there
      is a prediction, 0 where a row has fewer than P.

    >>> masking = Masking(mask_share=1, random_share=0)
    >>> vocabulary = Vocabulary(31, 4, (0, 2, 3))
    >>> ids = jnp.array([[2, 11, 12, 13, 14, 3, 0]])
    >>> masked = mask_tokens(key, jnp.array([0]), ids, ids > 0, masking, vocabulary)
    >>> [masked[name].tolist() for name in ("input_ids", "positions", "labels")]
    [[[2, 11, 12, 4, 14, 3, 0]], [[3]], [[13]]]
    """
    counts = masking.counts(input_ids.shape[1])
    tokens = jnp.sum(attention_mask > 0, axis=1)
    candidates = attention_mask > 0
    for token in vocabulary.protected:
        candidates &= input_ids != token
    mask_row = functools.partial(
        _mask_row,
        P=masking.predictions(input_ids.shape[1]),
        masking=masking,
        vocabulary=vocabulary,
    )
    keys = row_keys(key, examples)
    return jax.vmap(mask_row)(keys, input_ids, candidates, jnp.asarray(counts)[tokens])


def row_keys(key: jax.Array, numbers: jax.Array) -> jax.Array:
    """A key for each row `[B]`, from its number: uint32 `[B]`, or two words `[B, 2]`.

    The low word comes first. A number below 2**32 has the same key in both forms.

    >>> key = jax.random.key(0)
    >>> one, two = row_keys(key, jnp.uint32([7])), row_keys(key, jnp.uint32([[7, 0]]))
    >>> bool((one == two).all())
    True
    """

    def of_words(low, high):
        short = jax.random.fold_in(key, low)
        # Small numbers folded into a row's key make the keys of its parts.
        apart = jax.random.fold_in(short, 2**32 - 1)
        return jnp.where(high > 0, jax.random.fold_in(apart, high), short)

    if numbers.ndim == 1:
        return jax.vmap(jax.random.fold_in, (None, 0))(key, numbers)
    return jax.vmap(of_words)(numbers[:, 0], numbers[:, 1])


def _mask_row(key, ids, candidates, count, *, P, masking, vocabulary):
    choice_key, action_key, token_key = jax.random.split(key, 3)
    scores = jnp.where(candidates, jax.random.uniform(choice_key, ids.shape), -1)
    if masking.whole_words or masking.ngram > 1:
        starts = candidates
        if masking.whole_words:
            starts = word_starts(ids, candidates, vocabulary.is_continuation)
        draws = jax.random.uniform(jax.random.fold_in(key, 3), ids.shape)
        sizes = ngram_sizes(draws, units_ahead(starts, candidates), masking.ngram)
        chosen = choose_spans(scores, starts, candidates, count, sizes)
        scores = jnp.where(chosen, 1, -1)
    best, positions = jax.lax.top_k(scores, P)
    weights = (best >= 0) & (jnp.arange(P) < count)
    labels = ids[positions]
    draw = jax.random.uniform(action_key, (P,))
    tokens = jax.random.randint(token_key, (P,), 0, vocabulary.size, ids.dtype)
    masked = jnp.where(draw < masking.mask_share + masking.random_share, tokens, labels)
    masked = jnp.where(draw < masking.mask_share, vocabulary.mask_id, masked)
    return {
        "input_ids": ids.at[positions].set(jnp.where(weights, masked, labels)),
        "positions": positions,
        "labels": labels,
        "weights": weights.astype(jnp.float32),
    }


def word_starts(
    ids: jax.Array, candidates: jax.Array, is_continuation: np.ndarray
) -> jax.Array:
    """True where a word begins, `[L]`; a piece after [CLS] or [SEP] begins one.

    Args:
      ids, candidates: `[L]`, tokens, and True for those that may be masked.
      is_continuation: `[V]`, see `Vocabulary`.

    >>> continues = np.array([False, False, True])
    >>> ids, candidates = jnp.array([0, 1, 2, 1, 0]), jnp.array([0, 1, 1, 1, 0]) > 0
    >>> word_starts(ids, candidates, continues)
    Array([False,  True, False,  True, False], dtype=bool)
    """
    after_special = ~jnp.concatenate([jnp.array([False]), candidates[:-1]])
    return candidates & (~jnp.asarray(is_continuation)[ids] | after_special)


def units_ahead(starts: jax.Array, candidates: jax.Array) -> jax.Array:
    """The number of units from each start on, its own included: `[L]`.

    A token that is never masked ends the count, so that no n-gram reaches from one
    segment, or packed sequence, into another. `starts` and `candidates` are those of
    `choose_spans`.

    >>> units_ahead(jnp.array([1, 0, 1, 0, 1]), jnp.array([1, 1, 1, 0, 1]) > 0)
    Array([2, 1, 1, 0, 1], dtype=int32)
    """
    before = jnp.cumsum(starts) - starts
    # Units before the next token that is not a candidate: the minimum from here on.
    ends = jnp.where(candidates, starts.sum(), before)
    return jax.lax.cummin(ends, reverse=True) - before


def ngram_sizes(draws: jax.Array, ahead: jax.Array, ngram: int) -> jax.Array:
    """Sizes n of n-grams, from 1 to min(`ngram`, `ahead`), with weights 1 / n: `[L]`.

    `draws` `[L]` are uniform in [0, 1); sizes are 1 where nothing is ahead.

    >>> ngram_sizes(jnp.array([0.5, 0.6, 0.9, 0.9]), jnp.array([3, 3, 3, 2]), 3)
    Array([1, 2, 3, 2], dtype=int32)
    """
    sums = jnp.cumsum(1 / jnp.arange(1, ngram + 1, dtype=jnp.float32))
    scaled = draws * sums[jnp.clip(ahead, 1, ngram) - 1]
    return 1 + jnp.sum(scaled[:, None] >= sums[None, :-1], axis=-1)


def choose_spans(
    scores: jax.Array,
    starts: jax.Array,
    candidates: jax.Array,
    count: jax.Array,
    sizes: jax.Array,
) -> jax.Array:
    """Spans in random order until `count` tokens are chosen: bool `[L]`.

    The rules are those of create_pretraining_data.py, of google-research/bert and of
    google-research/albert: a span that would exceed `count` loses units from its end;
    if even one unit is too long, the span is skipped, and later, shorter ones may still
    fit; a span that overlaps a chosen one is skipped.

    Args:
      scores: `[L]`; units are visited by falling score of their first token.
      starts, candidates: bool `[L]`: a unit starts here; this token may be masked.
      count: the maximum number of tokens.
      sizes: `[L]`, the size in units of the span that starts with each unit.

    >>> scores, starts = jnp.array([0.1, 0.0, 0.9, 0.5]), jnp.array([1, 0, 1, 1])
    >>> choose_spans(scores, starts > 0, jnp.ones(4, bool), 3, jnp.ones(4, int))
    Array([False, False,  True,  True], dtype=bool)
    """
    length = scores.shape[0]
    unit = jnp.where(candidates, jnp.cumsum(starts) - 1, length)
    tokens = jnp.zeros(length, jnp.int32).at[unit].add(1, mode="drop")
    first = jnp.nonzero(starts, size=length, fill_value=length)[0]
    order = jnp.argsort(-scores.at[first].get(mode="fill", fill_value=-1))
    span_sizes = sizes.at[first].get(mode="fill", fill_value=0)
    units, upto = jnp.arange(length), jnp.cumsum(tokens)

    def visit(state, u):
        taken, total = state
        ahead = (units >= u) & (units < u + span_sizes[u]) & (tokens > 0)
        span = ahead & (upto - upto[u] + tokens[u] <= count - total)
        span &= ~jnp.any(span & taken)
        return (taken | span, total + jnp.sum(span * tokens)), None

    nothing = jnp.zeros(length, bool), jnp.int32(0)
    (taken, _), _ = jax.lax.scan(visit, nothing, order)
    return taken.at[unit].get(mode="fill", fill_value=False)
