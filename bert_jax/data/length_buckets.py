"""Padding to a few lengths, as each costs a compilation, and batches of like length."""

from collections.abc import Sequence

import numpy as np

from bert_jax.data import order
from bert_jax.data.distinct_texts import separated

# Training pads to one of these lengths, or to a multiple of the last. There are fewer
# than for inference, as the training step takes longer to compile.
TRAINING_LENGTHS = (16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)

# So many batches are sorted by length together.
WINDOW = 16


def padded_length(length: int, buckets: Sequence[int], max_length: int) -> int:
    """The length, at most `max_length`, that rows of `length` tokens are padded to.

    It is one of the ascending `buckets`, or a multiple of the last.
    """
    for bucket in buckets:
        if length <= bucket:
            return min(bucket, max_length)
    return min(-(-length // buckets[-1]) * buckets[-1], max_length)


def batch_of_like_lengths(
    lengths: np.ndarray,
    examples: np.ndarray,
    seed: int,
    stop: int | None = None,
    texts: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """The places in the stream `[B]` that form a batch instead of `examples`.

    Every `WINDOW` batches of the stream are sorted by length and cut into new batches,
    which come in a seeded order. So a batch is still a function of (seed, examples
    seen), and every epoch visits each row once.

    Args:
      lengths: of all rows, `[N]`.
      examples: B consecutive places, from a multiple of B.
      seed: of the stream and of the order of batches.
      stop: the end of the stream; a window never reaches beyond it.
      texts: numbers of the texts of all rows, `[N, C]`, if no batch is to have one
        twice; see `distinct_texts.separated`.

    Returns:
      The places, and bool `[B]`: False for a row with a text of another one.
    """
    size, number = len(examples), int(examples[0]) // len(examples)
    if examples[0] % size:
        raise ValueError(
            f"start={examples[0]} is not a multiple of batch_size={size}; rows grouped "
            "by length can only go on between batches"
        )
    window, place = divmod(number, WINDOW)
    end = (window + 1) * WINDOW * size
    end = end if stop is None else min(end, stop - stop % size)
    stream = np.arange(window * WINDOW * size, end)
    _, rows = order.epochs_and_rows(stream, len(lengths), seed)
    by_length = np.argsort(lengths[rows], kind="stable")
    alike = by_length.reshape(-1, size)
    alone = np.ones(alike.shape, bool)
    if texts is not None:
        alike, alone = separated(alike, texts[rows])
    batch = order.permute(np.array([place]), len(alike), (seed, window))[0]
    return stream[alike[batch]], alone[batch]
