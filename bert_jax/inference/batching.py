"""Texts in batches of few shapes: each is compiled once, the answers come in order."""

import collections
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from tqdm import tqdm

from bert_jax.data.length_buckets import padded
from bert_jax.tokenizers import Tokenizer
from bert_jax.tokenizers.text import refuse_surrogates

# Rows are padded to one of these lengths, or to a multiple of the last. On sentences an
# eighth of the positions is then padding; closer steps compile more than they save.
BUCKETS = (
    *(8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128),
    *(160, 192, 224, 256, 320, 384, 448, 512),
)

# So many batches are sorted by length together, and so many run ahead of the reader.
WINDOW = 64
AHEAD = 4

Batch = dict[str, np.ndarray]


class Answer(NamedTuple):
    """What came out for some texts: their numbers `[n]`, and arrays `[n, ...]`."""

    rows: np.ndarray
    inputs: Batch
    output: Any


def answers(
    step: Callable[[Batch], Any],
    tokenizer: Tokenizer,
    texts: Sequence[str],
    pairs: Sequence[str] | None = None,
    *,
    max_length: int,
    batch_size: int,
    offsets: bool = False,
    strict: bool = False,
    progress: bool = True,
) -> Iterator[Answer]:
    """Runs `step` over all texts, in batches of rows of like length.

    Args:
      step: arrays `[B, L]` as the tokenizer gives them -> arrays with leading axis B.
      tokenizer, texts, pairs: what to run over.
      max_length: in tokens; longer rows are cut, and one warning says how many.
      batch_size: the largest B; fewer texts make a B that is a power of two.
      offsets: whether the inputs tell where in its text each token lies.
      strict: whether a text that is too long, or has a lone surrogate, is an error.
      progress: whether there is a bar.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size={batch_size}; it must be at least 1")
    batch_size = min(batch_size, power_of_two(len(texts)))
    if strict:
        refuse_surrogates([*texts, *(pairs or ())])
    cut = 0
    with bar_of(len(texts), "texts", progress) as bar:
        for start in range(0, len(texts), WINDOW * batch_size):
            window = slice(start, start + WINDOW * batch_size)
            batch, too_long = _tokenize(
                tokenizer, texts[window], pairs and pairs[window], max_length, offsets
            )
            left = tokenizer.specials.pads_left
            cut += too_long
            if cut and strict:
                raise ValueError(
                    f"{cut} of {len(texts)} texts are longer than {max_length} tokens; "
                    "shorten them, or load without strict"
                )
            for answer in run(step, batch, batch_size, max_length, left):
                yield answer._replace(rows=answer.rows + start)
                bar.update(len(answer.rows))
    if cut:
        warnings.warn(
            f"cut {cut} of {len(texts)} texts to {max_length} tokens", stacklevel=3
        )


def bar_of(total: int | None, unit: str, shown: bool = True) -> tqdm:
    """A bar on a terminal, once there is time to look at it."""
    disable = None if shown else True  # None: where there is no terminal
    return tqdm(total=total, delay=3, disable=disable, unit=f" {unit}")


def run(
    step: Callable[[Batch], Any],
    batch: Batch,
    batch_size: int,
    max_length: int,
    pads_left: bool = False,
) -> Iterator[Answer]:
    """Runs `step` over rows `[N, L]` that are padded, in the order of their lengths."""
    lengths = batch["attention_mask"].sum(1)
    order = np.argsort(lengths, kind="stable")
    running = collections.deque()
    for first in range(0, len(order), batch_size):
        rows = order[first : first + batch_size]
        length = bucket(lengths[rows[-1]], max_length)
        # A batch that is not full repeats its rows.
        full = np.resize(rows, batch_size)
        kept = _columns(length, pads_left)
        inputs = {name: x[full, kept] for name, x in batch.items()}
        running.append(Answer(rows, inputs, step(inputs)))
        if len(running) > AHEAD:
            yield _read(running.popleft())
    yield from map(_read, running)


def _read(answer):
    """The answer as NumPy arrays, without repeated rows."""
    n = len(answer.rows)
    return jax.tree.map(lambda x: np.asarray(x)[:n], answer)


def _tokenize(tokenizer, texts, pairs, max_length, offsets):
    """Rows, padded to a bucket's length, and how many of them had to be cut."""
    pads_left = tokenizer.specials.pads_left
    batch = tokenizer(texts, pairs, max_length=max_length + 1, offsets=offsets)
    long = np.flatnonzero(batch["attention_mask"].sum(1) > max_length)
    if len(long):
        chosen = [[column[i] for i in long] for column in (texts, pairs) if column]
        short = tokenizer(*chosen, max_length=max_length, offsets=offsets)
        for name in batch:
            batch[name] = batch[name][:, _columns(max_length, pads_left)]
            batch[name][long] = short[name]
    width = batch["input_ids"].shape[1]
    fill = {"input_ids": tokenizer.pad_id}
    for name, x in batch.items():
        more = bucket(width, max_length) - width
        pad = ((0, 0), (more, 0) if pads_left else (0, more), (0, 0))[: x.ndim]
        batch[name] = np.pad(x, pad, constant_values=fill.get(name, 0))
    return batch, len(long)


def _columns(length, pads_left):
    """Those that a row of `length` tokens leaves when its padding is cut."""
    return slice(-length, None) if pads_left else slice(length)


def bucket(length: int, max_length: int) -> int:
    """The length, at most `max_length`, that rows of `length` tokens are padded to."""
    return padded(length, BUCKETS, max_length)


def power_of_two(n: int) -> int:
    """The least one that is not below n."""
    return 1 << max(n - 1, 0).bit_length()
