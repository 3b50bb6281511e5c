"""Beam search: the likeliest text of a model that scores one token after another."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

# (tokens [B, K, L], t) -> log probabilities [B, K, V] of the token behind place t.
Scores = Callable[[jax.Array, jax.Array], jax.Array]


def length_penalty(length: jax.Array, alpha: float) -> jax.Array:
    """What a log probability is divided by (Wu et al., 2016, section 7)."""
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
    """The best texts that were found, the best first.

    A text ends with its `end_id`, or at `max_length`; the start does not count. Each
    step keeps the `beams` best of all texts that are one token longer or had ended, by
    log probability over `length_penalty`; 0.6 is the `alpha` of Vaswani et al., 2017,
    section 6.1. One beam is greedy search.

    Returns:
      int32 `[B, beams, max_length]`, padded behind the end, and float32 `[B, beams]`.
    """
    tokens = jnp.full((batch, beams, max_length + 1), pad_id, jnp.int32)
    tokens = tokens.at[:, :, 0].set(start_id)
    # All beams start alike, so only the first counts.
    total = jnp.where(jnp.arange(beams) == 0, 0.0, -jnp.inf)[None].repeat(batch, 0)
    lengths = jnp.zeros((batch, beams), jnp.int32)
    ended = jnp.zeros((batch, beams), bool)

    def extend(t, state):
        tokens, total, lengths, ended = state
        step = scores(tokens, t)
        is_pad = (jnp.arange(step.shape[-1]) == pad_id)[None, None]
        # A text that has ended goes on with padding, any other never does.
        step = jnp.where(ended[..., None] == is_pad, step, -jnp.inf)
        step = jnp.where(ended[..., None] & is_pad, 0.0, step)
        longer = lengths + ~ended
        logs = total[..., None] + step
        ranked = logs / length_penalty(longer, alpha)[..., None]
        _, places = jax.lax.top_k(ranked.reshape(batch, -1), beams)
        beam, token = jnp.divmod(places, step.shape[-1])

        def chosen(x):
            return jnp.take_along_axis(x, beam, axis=1)

        tokens = jnp.take_along_axis(tokens, beam[..., None], axis=1)
        tokens = tokens.at[:, :, t + 1].set(token)
        total = jnp.take_along_axis(logs.reshape(batch, -1), places, axis=1)
        return tokens, total, chosen(longer), chosen(ended) | (token == end_id)

    state = jax.lax.fori_loop(0, max_length, extend, (tokens, total, lengths, ended))
    tokens, total, lengths, _ = state
    return tokens[:, :, 1:], total / length_penalty(lengths, alpha)
