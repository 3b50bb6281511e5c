"""Sampling: one token after the other, from what temperature and cuts leave."""

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from examples.gpt.model import GPT, empty_cache


@dataclasses.dataclass(frozen=True)
class Sampling:
    """The distribution that the next token is drawn from, see `next_logits`.

    Attributes:
      temperature: below 1 sharpens the distribution; 0 takes the likeliest token.
      top_k: keeps so many of the likeliest tokens (Fan et al., 2018); 0 keeps all.
      top_p: keeps the likeliest tokens until their probabilities sum to it (Holtzman et
        al., 2020); 1 keeps all.

    >>> Sampling(top_p=1.5)
    Traceback (most recent call last):
    ValueError: top_p=1.5 is not in (0, 1]; 0.9 is usual, and 1 keeps all tokens
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0

    def __post_init__(self):
        if not 0 <= self.temperature < math.inf:
            raise ValueError(
                f"temperature={self.temperature} is negative or not finite; 0.8 is "
                "usual, and 0 takes the likeliest token"
            )
        if self.top_k < 0:
            raise ValueError(f"top_k={self.top_k} is negative; 0 keeps all tokens")
        if not 0 < self.top_p <= 1:
            raise ValueError(
                f"top_p={self.top_p} is not in (0, 1]; 0.9 is usual, and 1 keeps all "
                "tokens"
            )


def next_logits(logits: jax.Array, sampling: Sampling) -> jax.Array:
    """`[B, V] -> [B, V]`: divided by the temperature, and -inf for what is cut.

    First `top_k` cuts, then `top_p` from what is left. Tokens that tie with the last
    one that is kept are kept, too.
    """
    if sampling.temperature == 0:
        tokens = jnp.arange(logits.shape[-1])[None]
        return jnp.where(tokens == logits.argmax(-1)[:, None], 0.0, -jnp.inf)
    logits = logits / sampling.temperature
    if 0 < sampling.top_k < logits.shape[-1]:
        least = jax.lax.top_k(logits, sampling.top_k)[0][:, -1:]
        logits = jnp.where(logits < least, -jnp.inf, logits)
    if sampling.top_p < 1:
        ranked = jnp.sort(logits, axis=-1, descending=True)
        probabilities = jax.nn.softmax(ranked)
        before = jnp.cumsum(probabilities, -1) - probabilities
        least = jnp.where(before < sampling.top_p, ranked, jnp.inf)
        logits = jnp.where(logits < least.min(-1, keepdims=True), -jnp.inf, logits)
    return logits


@functools.partial(jax.jit, static_argnames=("model", "count", "sampling"))
def generate(
    model: GPT,
    params: Mapping[str, Any],
    prompt: jax.Array,
    key: jax.Array,
    *,
    count: int,
    sampling: Sampling,
) -> jax.Array:
    """`count` tokens `[B, count]` after each row of a prompt `[B, L]` without padding.

    Raises ValueError if both together exceed the context of the model.
    """
    B, L = prompt.shape
    if not 0 < L <= model.config.max_length - count:
        raise ValueError(
            f"a prompt of {L} tokens and {count} more do not fit the context of "
            f"{model.config.max_length}; give a prompt of 1 to "
            f"{model.config.max_length - count}, or ask for fewer"
        )

    def read(cache, ids):
        logits, variables = model.apply(
            {"params": params, "cache": cache}, ids, mutable="cache", method="logits"
        )
        return variables["cache"], logits[:, -1]

    def extend(state, key):
        cache, logits = state
        token = jax.random.categorical(key, next_logits(logits, sampling))
        return read(cache, token[:, None]), token

    state = read(empty_cache(model.config, B), prompt)
    _, tokens = jax.lax.scan(extend, state, jax.random.split(key, count))
    return tokens.T
