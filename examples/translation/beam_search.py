"""Beam search: the most likely text of a model that scores one token at a time."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

# (tokens [B, K, L], t) -> log probabilities [B, K, V] of the token after position t.
Scores = Callable[[jax.Array, jax.Array], jax.Array]


def length_penalty(length: jax.Array, alpha: float) -> jax.Array:
    """The divisor of log probabilities (Wu et al., 2016, section 7)."""
    return ((5.0 + length) / 6.0) ** alpha


def beam_search(
    scores: Scores,
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
    `alpha` of Vaswani et al., 2017, section 6.1. One beam is greedy search.

    Returns:
      int32 `[B, beams, max_length]`, padded after the end, and float32 `[B, beams]`.
    """
    tokens = jnp.full((batch, beams, max_length + 1), pad_id, jnp.int32)
    tokens = tokens.at[:, :, 0].set(start_id)
    # All beams start with the same tokens, so only the first counts.
    total = jnp.where(jnp.arange(beams) == 0, 0.0, -jnp.inf)[None].repeat(batch, 0)
    lengths = jnp.zeros((batch, beams), jnp.int32)
    ended = jnp.zeros((batch, beams), bool)

    def extend(t, state):
        tokens, total, lengths, ended = state
        step = scores(tokens, t)
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
            return jnp.take_along_axis(x, beam, axis=1)

        tokens = jnp.take_along_axis(tokens, beam[..., None], axis=1)
        tokens = tokens.at[:, :, t + 1].set(token)
        total = jnp.take_along_axis(logs.reshape(batch, -1), positions, axis=1)
        return tokens, total, of_beam(longer), of_beam(ended) | (token == end_id)

    state = jax.lax.fori_loop(0, max_length, extend, (tokens, total, lengths, ended))
    tokens, total, lengths, _ = state
    return tokens[:, :, 1:], total / length_penalty(lengths, alpha)
