"""Beam search: the most likely text of a model that scores one token at a time."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

# (tokens [B, K, L], t, state) -> log probabilities [B, K, V] of the token after
# position t, and a new state.
Scores = Callable[[jax.Array, jax.Array, Any], tuple[jax.Array, Any]]


def length_penalty(length: jax.Array, alpha: float) -> jax.Array:
    """The divisor of log probabilities (Wu et al., 2016, section 7)."""
    return ((5.0 + length) / 6.0) ** alpha


def beam_search(
    scores: Scores,
    state: Any,
    batch: int,
    *,
    beams: int,
    max_length: int,
    start_id: int,
    end_id: int,
    pad_id: int,
    alpha: float = 0.6,
) -> tuple[jax.Array, jax.Array]:
    """The best texts and their scores, best first.

    A text ends with its `end_id`, or at `max_length`; the start does not count. Each
    step extends all texts that have not ended by one token, and keeps the `beams` best
    of these and the ended ones, by log probability over `length_penalty`. 0.6 is the
    `alpha` of Vaswani et al., 2017, section 6.1. One beam is greedy search. All is done
    when every one of the best texts has ended.

    Args:
      scores: of the next token.
      state: a tree of arrays `[B, beams, ...]` that `scores` takes and returns, so that
        it need not read all tokens at each step; it goes with the texts that stay.
      batch: B.
      beams, max_length: of texts, and of their tokens.
      start_id, end_id, pad_id: of tokens.
      alpha: of `length_penalty`.

    Returns:
      int32 `[B, beams, max_length]`, padded after the end, and float32 `[B, beams]`.
    """
    tokens = jnp.full((batch, beams, max_length + 1), pad_id, jnp.int32)
    tokens = tokens.at[:, :, 0].set(start_id)
    # All beams start with the same tokens, so only the first counts.
    total = jnp.where(jnp.arange(beams) == 0, 0.0, -jnp.inf)[None].repeat(batch, 0)
    lengths = jnp.zeros((batch, beams), jnp.int32)
    ended = jnp.zeros((batch, beams), bool)

    def goes_on(carry):
        t, _, _, _, ended, _ = carry
        return (t < max_length) & ~ended.all()

    def extend(carry):
        t, tokens, total, lengths, ended, state = carry
        step, state = scores(tokens, t, state)
        is_pad = (jnp.arange(step.shape[-1]) == pad_id)[None, None]
        # An ended text continues with padding, and only an ended text does.
        step = jnp.where(ended[..., None] == is_pad, step, -jnp.inf)
        step = jnp.where(ended[..., None] & is_pad, 0.0, step)
        longer = lengths + ~ended
        logs = total[..., None] + step
        ranked = logs / length_penalty(longer, alpha)[..., None]
        _, positions = jax.lax.top_k(ranked.reshape(batch, -1), beams)
        beam, token = jnp.divmod(positions, step.shape[-1])

        def of_beam(x):
            return jnp.take_along_axis(
                x, beam.reshape(*beam.shape, *[1] * (x.ndim - 2)), axis=1
            )

        tokens = of_beam(tokens).at[:, :, t + 1].set(token)
        total = jnp.take_along_axis(logs.reshape(batch, -1), positions, axis=1)
        ended = of_beam(ended) | (token == end_id)
        state = jax.tree.map(of_beam, state)
        return t + 1, tokens, total, of_beam(longer), ended, state

    carry = jnp.zeros((), jnp.int32), tokens, total, lengths, ended, state
    _, tokens, total, lengths, _, _ = jax.lax.while_loop(goes_on, extend, carry)
    return tokens[:, :, 1:], total / length_penalty(lengths, alpha)
