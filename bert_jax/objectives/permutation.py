"""Permutation language modelling (XLNet, Yang et al., 2019).

Pure functions of (key, ids) that run on the device. As in `masking`, everything is
drawn from the position of a row in the stream of examples. It depends neither on the
batch nor on the devices a batch is split over, and a resumed run draws the same.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.models import heads
from bert_jax.objectives.losses import (
    Batch,
    Params,
    Totals,
    apply_model,
    throughput_totals,
    token_totals,
    valid_attention_mask,
    valid_rows,
)
from bert_jax.objectives.masking import Vocabulary, row_keys, word_starts


@dataclasses.dataclass
class Permutation:
    """Predicted tokens of a row; the defaults are XLNet's (Yang et al., 2019, 2.3).

    Most are in spans of n tokens from the start of a word on, with K n tokens of
    context around them. If spans do not give enough predictions, single tokens are
    added, as in the paper's code (zihangdai/xlnet, `_sample_mask`).

    Attributes:
      one_in: K in the paper: one of K tokens is predicted.
      ngram: the maximum of n, whose probability is proportional to 1 / n.
      max_predictions: P, the predictions of one row; None takes the row length / K.
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
        """Predictions among 0, 1, ..., length tokens: `[length + 1]`, at most P."""
        counts = np.maximum(np.arange(length + 1) // self.one_in, 1)
        counts[0] = 0
        return np.minimum(counts, self.predictions(length)).astype(np.int32)


def permutation_lm_loss(
    model: heads.PermutationLM,
    params: Params,
    batch: Batch,
    key: jax.Array | None,
    *,
    order_key: jax.Array,
    permutation: Permutation,
    vocabulary: Vocabulary,
) -> Totals:
    """mlm_loss and mlm_accuracy of the predicted tokens, tokens and flops.

    Args:
      model, params, batch, key, vocabulary: see `masked_lm_loss`.
      order_key: of the predicted tokens and their order.
      permutation: the settings.
    """
    permuted = permute_batch(batch, order_key, permutation, vocabulary)
    logits = apply_model(
        model,
        params,
        batch,
        key,
        batch["input_ids"],
        positions=permuted["positions"],
        perm_mask=permuted["perm_mask"],
    )
    config, predictions = model.encoder.config, permuted["weights"].sum()
    totals = throughput_totals(config, valid_attention_mask(batch), predictions)
    flops, count = totals["flops"]
    return {
        **token_totals(logits, permuted, evaluating=key is None),
        **totals,
        "flops": (flops + query_flops(config, predictions), count),
    }


def query_flops(config: Any, predictions: jax.Array) -> jax.Array:
    """FLOPs of the query stream in all layers; it shares the keys of the content."""
    D, F = float(config.hidden_size), float(config.intermediate_size)
    block = 2 * D * D + config.mlp_kernels * D * F
    return jnp.asarray(6.0 * config.num_hidden_layers * block * predictions)


def permute_batch(
    batch: Batch,
    order_key: jax.Array,
    permutation: Permutation,
    vocabulary: Vocabulary,
) -> dict[str, jax.Array]:
    """`permute_tokens` for a batch; rows that only fill the batch predict nothing."""
    inputs = batch["example"], batch["input_ids"], batch["attention_mask"]
    permuted = permute_tokens(order_key, *inputs, permutation, vocabulary)
    return permuted | {"weights": permuted["weights"] * valid_rows(batch)[:, None]}


def permute_tokens(
    key: jax.Array,
    examples: jax.Array,
    input_ids: jax.Array,
    attention_mask: jax.Array,
    permutation: Permutation,
    vocabulary: Vocabulary,
) -> dict[str, jax.Array]:
    """Chooses the tokens to predict in a batch, and their order.

    Args:
      key: the key of the run.
      examples: `[B]` or `[B, 2]`, see `row_keys`: the position of each row in the
        stream of examples.
      input_ids, attention_mask: `[B, L]`; 0 in the mask is padding, and tokens of one
        value are a sequence.
      permutation: the settings.
      vocabulary: of the ids.

    Returns:
      `perm_mask` bool `[B, L, L]`, see the function of this name, and `positions`,
      `labels`, `weights` `[B, P]`: the position and the id of each prediction, and 1
      where there is a prediction, 0 where a row has fewer than P.
    """
    length = input_ids.shape[1]
    permute_row = functools.partial(
        _permute_row,
        P=permutation.predictions(length),
        counts=jnp.asarray(permutation.counts(length)),
        permutation=permutation,
        vocabulary=vocabulary,
    )
    keys = row_keys(key, examples)
    return jax.vmap(permute_row)(keys, input_ids, attention_mask)


def _permute_row(key, ids, mask, *, P, counts, permutation, vocabulary):
    span_key, single_key, order_key = jax.random.split(key, 3)
    candidates = mask > 0
    for token in vocabulary.protected:
        candidates &= ids != token
    count = counts[jnp.sum(mask > 0)]
    starts = word_starts(ids, candidates, vocabulary.is_continuation)
    chosen = choose_spans(span_key, starts, candidates, count, P, permutation)
    scores = jnp.where(candidates, jax.random.uniform(single_key, ids.shape), -1)
    best, positions = jax.lax.top_k(jnp.where(chosen, 2, scores), P)
    weights = (best >= 0) & (jnp.arange(P) < count)
    predicted = jnp.zeros(ids.shape, bool).at[positions].set(weights)
    order = jax.random.permutation(order_key, len(ids))
    unseen = perm_mask(order, predicted, (mask > 0) & ~candidates)
    # A token that sees nothing would attend to everything: do not predict it.
    sees_some = ((mask[:, None] == mask[None]) & ~unseen).any(1)
    return {
        "perm_mask": unseen,
        "positions": positions,
        "labels": ids[positions],
        "weights": (weights & sees_some[positions]).astype(jnp.float32),
    }


def perm_mask(
    order: jax.Array, predicted: jax.Array, functional: jax.Array
) -> jax.Array:
    """True where token i does not see token j: bool `[L, L]`.

    The context is all tokens that are neither predicted nor functional. It comes first
    and unordered: every token sees it, and it sees nothing else. A predicted or
    functional token also sees those before it in `order`; a functional one sees itself.
    (Encoders let the content stream see itself in any case.)

    Args:
      order: `[L]`, distinct numbers.
      predicted: bool `[L]`.
      functional: bool `[L]`, [CLS] and [SEP]. They have a place in the order but are
        not predicted, as in zihangdai/xlnet's `_local_perm`.

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
    itself = jnp.eye(len(order), dtype=bool) & ~predicted[:, None]
    return later & ~itself & ordered[None]


def choose_spans(
    key: jax.Array,
    starts: jax.Array,
    candidates: jax.Array,
    count: jax.Array,
    max_count: int,
    permutation: Permutation,
) -> jax.Array:
    """Spans from left to right, `count` tokens at most: bool `[L]`.

    A span begins with a word and ends before a token that cannot be predicted. Around
    each there are `one_in` times as many tokens that are not chosen, divided between
    left and right at random. The row may end before `count` is reached.

    Args:
      key: of sizes and positions.
      starts, candidates: bool `[L]`: a word begins here; this token can be predicted.
      count, max_count: the number to choose, and its static upper bound.
      permutation: has `one_in` and `ngram`.
    """
    length, positions = len(starts), jnp.arange(len(starts))
    next_start = _next(starts)
    next_barrier = _next(~candidates)
    draws = jax.random.uniform(key, (2, max_count))
    shares = np.cumsum(1 / np.arange(1, permutation.ngram + 1))
    sizes = 1 + jnp.searchsorted(jnp.asarray(shares[:-1] / shares[-1]), draws[0])

    def visit(state, drawn):
        cursor, total = state
        size = jnp.minimum(drawn[0], count - total)
        context = permutation.one_in * size
        left = (drawn[1] * (context + 1)).astype(jnp.int32)
        begin = next_start.at[cursor + left].get(mode="fill", fill_value=length)
        end = next_barrier.at[begin].get(mode="fill", fill_value=length)
        end = jnp.minimum(end, begin + size)
        return (end + context - left, total + end - begin), (begin, end)

    nothing = jnp.int32(0), jnp.int32(0)
    _, (begin, end) = jax.lax.scan(visit, nothing, (sizes, draws[1]))
    inside = (begin[:, None] <= positions[None]) & (positions[None] < end[:, None])
    return inside.any(0)


def _next(marks):
    """The position of the first mark at or after each position: `[L]`, L if none."""
    length = len(marks)
    positions = jnp.where(marks, jnp.arange(length, dtype=jnp.int32), length)
    return jax.lax.cummin(positions, reverse=True)
