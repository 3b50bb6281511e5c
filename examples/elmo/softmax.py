"""Losses over a vocabulary: all words, or the right one among a drawn sample."""

import jax
import jax.numpy as jnp


def full_softmax(
    hidden: jax.Array, labels: jax.Array, word: jax.Array, bias: jax.Array
) -> jax.Array:
    """Cross-entropy `[B, L]` of `labels` `[B, L]` over all V words.

    Args:
      hidden: `[B, L, D]`.
      labels: numbers of words.
      word, bias: `[V, D]` and `[V]`; the scores are `word @ hidden + bias`.
    """

    @jax.checkpoint
    def losses(inputs):
        x, y = inputs
        scores = x @ word.T + bias[None]
        right = jnp.take_along_axis(scores, y[:, None], 1)[:, 0]
        return jax.nn.logsumexp(scores, axis=-1) - right

    # One place of all rows at a time: the scores of all places need not fit in memory.
    by_place = hidden.swapaxes(0, 1), labels.swapaxes(0, 1)
    return jax.lax.map(losses, by_place).swapaxes(0, 1)


def sampled_softmax(
    hidden: jax.Array,
    labels: jax.Array,
    word: jax.Array,
    bias: jax.Array,
    samples: int,
    key: jax.Array,
) -> jax.Array:
    """Cross-entropy `[B, L]` over each label and `samples` words drawn for the batch.

    Scores have the logarithm of the probability of being drawn subtracted, so that the
    loss tends to that of all words as the sample grows (Jean et al., 2015, section 3,
    after Bengio and Senécal, 2008). As in TensorFlow's `sampled_softmax_loss`, with
    which ELMo was trained, words are drawn by rank, without repetition, and a drawn
    word that is the label does not count twice. With all V words it is `full_softmax`.
    The other arguments are those of `full_softmax`; words are sorted by frequency.
    """
    x, y = hidden.reshape(-1, hidden.shape[-1]), labels.reshape(-1)
    drawn, chances = log_uniform_sample(key, len(word), samples)
    right = (x * jnp.take(word, y, 0)).sum(-1) + bias[y] - jnp.log(chances[y])
    others = x @ jnp.take(word, drawn, 0).T
    others += (bias[drawn] - jnp.log(chances[drawn]))[None]
    others = jnp.where(y[:, None] == drawn[None], -jnp.inf, others)
    total = jax.nn.logsumexp(jnp.concatenate([right[:, None], others], 1), axis=-1)
    return (total - right).reshape(labels.shape)


def log_uniform_sample(
    key: jax.Array, size: int, samples: int
) -> tuple[jax.Array, jax.Array]:
    """Different words drawn by rank `[samples]`, and each word's chance of it `[size]`.

    One draw takes the word of rank k with the probability
    log((k + 2) / (k + 1)) / log(size + 1), Zipf's law. Drawing until there are enough
    different words is the same as an exponential clock for each word, at the rate of
    its probability, and the words that ring first. The chance of a word is that of
    ringing before the first word that is not drawn (Vieira, 2014, "Gumbel-max trick and
    weighted reservoir sampling"); TensorFlow uses the number of draws as that time.
    """
    ranks = jnp.arange(size, dtype=jnp.float32)
    rates = jnp.log1p(1 / (ranks + 1)) / jnp.log(size + 1.0)
    if samples >= size:
        return jnp.arange(size), jnp.ones(size)
    times = jax.random.exponential(key, (size,)) / rates
    first, drawn = jax.lax.top_k(-times, samples + 1)
    return drawn[:-1], -jnp.expm1(rates * first[-1])
