"""Texts in batches of a few shapes, so that each shape compiles once."""

import collections
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from bert_jax.data import progress
from bert_jax.data.length_buckets import padded_length
from bert_jax.data.ragged import RaggedRows
from bert_jax.files import counted
from bert_jax.inference import checks
from bert_jax.tokenizers import Tokenizer
from bert_jax.tokenizers.text import check_surrogates

if TYPE_CHECKING:
    from bert_jax.inference.model import Model

# Rows are padded to one of these lengths, or to a multiple of the last. On sentences an
# eighth of the positions is then padding; closer steps compile more than they save.
BUCKETS = (
    *(8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128),
    *(160, 192, 224, 256, 320, 384, 448, 512),
)

# Batches that are sorted by length together, and batches that run ahead of the reader.
WINDOW = 64
AHEAD = 4

# The arrays of a batch that the model reads.
INPUTS = ("input_ids", "attention_mask", "token_type_ids")

Batch = dict[str, np.ndarray]
Step = Callable[[Batch], Any]


class BatchOutput(NamedTuple):
    """The output of one batch.

    Attributes:
      rows: the numbers of its rows among all, `[n]`.
      inputs: its arrays `[n, L]`.
      output: a tree of arrays `[n, ...]`.
    """

    rows: np.ndarray
    inputs: Batch
    output: Any


def run_texts(
    model: "Model",
    step: Step,
    texts: Sequence[str],
    pairs: Sequence[str] | None = None,
    *,
    batch_size: int,
    offsets: bool = False,
    truncation: str = "head",
) -> Iterator[BatchOutput]:
    """Runs `step` over all texts, in batches of rows of similar length.

    Rows longer than `model.max_length` are cut, and one warning counts them; a strict
    model raises ValueError instead.

    Args:
      model: its tokenizer makes the rows.
      step: arrays `[B, L]` as the tokenizer returns them -> arrays with leading axis B.
      texts, pairs: first and second texts.
      batch_size: the largest B; fewer texts make a B that is a power of two.
      offsets: adds the characters of each token, `[B, L, 2]`, to the inputs.
      truncation: the tokens of a long text that stay, see `Tokenizer.__call__`.
    """
    checks.check_count("batch_size", batch_size)
    tokenizer, max_length = model.check_tokenizer(), model.max_length
    step = _with_checked_ids(model, step)
    batch_size = min(batch_size, power_of_two(len(texts)))
    if model.strict:
        check_surrogates([*texts, *(pairs or ())])
    cut = 0
    with progress.opened(model.progress, len(texts), "texts") as bar:
        for start in range(0, len(texts), WINDOW * batch_size):
            window = slice(start, start + WINDOW * batch_size)
            batch, too_long = _tokenize(
                tokenizer,
                texts[window],
                pairs and pairs[window],
                max_length,
                offsets,
                truncation,
            )
            cut += too_long
            if cut and model.strict:
                raise ValueError(
                    f"longer than {max_length} tokens: {cut} of "
                    f"{counted(len(texts), 'text')}; shorten them, or load without "
                    "strict"
                )
            pads_left = tokenizer.specials.pads_left
            moved = _by_tokens(bar, batch["attention_mask"].sum(1))
            for result in run_sorted(step, batch, batch_size, max_length, pads_left):
                yield result._replace(rows=result.rows + start)
                moved(result.rows)
    if cut:
        warnings.warn(
            f"cut {cut} of {counted(len(texts), 'text')} to {max_length} tokens; "
            f"{checks.longer_rows(model)}",
            stacklevel=4,  # the line that called the model's method
        )


def _by_tokens(
    bar: progress.Bar | progress.Part, lengths: np.ndarray
) -> Callable[[np.ndarray], None]:
    """A function that moves a bar over texts by the share of their tokens.

    The shortest texts come first, so that their number would promise too early an end.
    """
    total, done, shown = int(lengths.sum()), 0, 0

    def move(rows: np.ndarray) -> None:
        nonlocal done, shown
        done += int(lengths[rows].sum())
        texts = len(lengths) * done // max(total, 1)
        if texts > shown:
            bar.update(texts - shown)
            shown = texts

    return move


def run_rows(
    model: "Model", step: Step, rows: RaggedRows, *, batch_size: int, unit: str
) -> Iterator[BatchOutput]:
    """Runs `step` over rows of tokens; `unit` is their name in the progress bar."""
    checks.check_count("batch_size", batch_size)
    if not len(rows):
        return
    length = bucket(int(rows.lengths.max()), model.max_length)
    batch = rows.gather(np.arange(len(rows)), length)
    step = _with_checked_ids(model, step)
    batch_size = min(batch_size, power_of_two(len(rows)))
    with progress.opened(model.progress, len(rows), unit) as bar:
        for result in run_sorted(step, batch, batch_size, model.max_length):
            yield result
            bar.update(len(result.rows))


def run_sorted(
    step: Step,
    batch: Batch,
    batch_size: int,
    max_length: int,
    pads_left: bool = False,
) -> Iterator[BatchOutput]:
    """Runs `step` over padded rows `[N, L]`, in the order of their lengths."""
    lengths = batch["attention_mask"].sum(1)
    order = np.argsort(lengths, kind="stable")
    running: collections.deque[BatchOutput] = collections.deque()
    for first in range(0, len(order), batch_size):
        rows = order[first : first + batch_size]
        length = bucket(lengths[rows[-1]], max_length)
        # A batch that is not full repeats its rows.
        full = np.resize(rows, batch_size)
        columns = _columns(length, pads_left)
        inputs = {name: x[full, columns] for name, x in batch.items()}
        running.append(BatchOutput(rows, inputs, step(inputs)))
        if len(running) > AHEAD:
            yield _as_numpy(running.popleft())
    yield from map(_as_numpy, running)


def bucket(length: int, max_length: int) -> int:
    """The length, at most `max_length`, that rows of `length` tokens are padded to."""
    return padded_length(length, BUCKETS, max_length)


def power_of_two(n: int) -> int:
    """The least power of two that is not below n."""
    return 1 << max(n - 1, 0).bit_length()


def _with_checked_ids(model: "Model", step: Step) -> Step:
    """`step` on the arrays that the model reads, which are checked first."""

    def run(batch: Batch) -> Any:
        inputs = {name: batch[name] for name in INPUTS}
        checks.check_ids(inputs, model.config)
        return step(inputs)

    return run


def _as_numpy(result: BatchOutput) -> BatchOutput:
    """The same as NumPy arrays, without repeated rows."""
    n = len(result.rows)
    return jax.tree.map(lambda x: np.asarray(x)[:n], result)


def _tokenize(
    tokenizer: Tokenizer,
    texts: Sequence[str],
    pairs: Sequence[str] | None,
    max_length: int,
    offsets: bool,
    truncation: str,
) -> tuple[Batch, int]:
    """Rows, padded to a bucket's length, and how many of them had to be cut."""
    pads_left = tokenizer.specials.pads_left
    batch = tokenizer(texts, pairs, max_length=max_length + 1, offsets=offsets)
    long = np.flatnonzero(batch["attention_mask"].sum(1) > max_length).tolist()
    if long:
        firsts = [texts[i] for i in long]
        seconds = [pairs[i] for i in long] if pairs else None
        short = tokenizer(
            firsts,
            seconds,
            max_length=max_length,
            offsets=offsets,
            truncation=truncation,
        )
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


def _columns(length: int, pads_left: bool) -> slice:
    """The columns of a padded row that hold its last, or first, `length` tokens."""
    return slice(-length, None) if pads_left else slice(length)
