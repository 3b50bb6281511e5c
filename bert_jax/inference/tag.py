"""The verb `tag`: a label for each word."""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from bert_jax.data import word_windows
from bert_jax.data.ragged import RaggedRows
from bert_jax.inference import batching, jitted
from bert_jax.inference.word_alignment import row_pieces
from bert_jax.models import TokenClassifier
from bert_jax.tokenizers import Tokenizer
from bert_jax.tokenizers.text import listed, refuse_surrogates


class Tag(NamedTuple):
    """A word, its label, where it stands in the text, and how probable the label is."""

    word: str
    label: str
    start: int
    end: int
    probability: float


class Cut(NamedTuple):
    """A text cut into words: where they stand in it, and the ids of each."""

    text: str
    spans: list[tuple[int, int]]
    ids: list[list[int]]


def tagged(
    head: nn.Module,
    params: Any,
    tokenizer: Tokenizer,
    labels: Sequence[str],
    texts: str | Sequence[str] | Sequence[Sequence[str]],
    *,
    longest: int,
    batch_size: int,
    strict: bool,
    progress: bool,
) -> list[Any]:
    """See `Model.tag`; `longest` is that of a row in tokens."""
    refuse_other_heads(head)
    if batch_size < 1:
        raise ValueError(f"batch_size={batch_size}; it must be at least 1")
    cuts = _cut(tokenizer, texts, strict)
    names = labels or [f"LABEL_{i}" for i in range(head.num_labels)]
    step = functools.partial(_probabilities, head, params)
    words = [cut.ids for cut in cuts]
    rows = word_windows.lay_out(tokenizer, words, range(len(cuts)), longest)
    how = tokenizer.pad_id, longest, batch_size, progress
    shares = iter(_shares(step, rows, head, *how))
    found = [
        [
            Tag(cut.text[a:b], names[p.argmax()], int(a), int(b), float(p.max()))
            for (a, b), p in zip(cut.spans, shares, strict=False)
        ]
        for cut in cuts
    ]
    return found[0] if isinstance(texts, str) else found


def refuse_other_heads(head: nn.Module) -> None:
    """Raises ValueError unless `head` gives an answer for each token."""
    if not isinstance(head, TokenClassifier):
        raise ValueError(
            f"this model has no token classifier but a {type(head).__name__}; make one "
            'with bert_jax.finetune(model, "tag", train=..., dev=...)'
        )


def _cut(tokenizer, texts, strict) -> list[Cut]:
    """Texts in words: as the tokenizer cuts them, or as they were given."""
    if not isinstance(texts, str):
        texts = list(texts)
        if texts and all(isinstance(text, list | tuple) for text in texts):
            sentences = [listed(x, f"texts[{i}]") for i, x in enumerate(texts)]
            return _given(tokenizer, sentences, strict)
    texts = listed(texts, "texts")
    if strict:
        refuse_surrogates(texts)
    encoded = tokenizer.encode_spans(texts)
    return [
        _found(tokenizer, text, *pair)
        for text, pair in zip(texts, encoded, strict=True)
    ]


def _found(tokenizer, text, ids, spans):
    """A text with the words that its pieces make."""
    starts = ~tokenizer.is_continuation[ids]
    its = row_pieces(np.reshape(spans, (-1, 2)), starts, np.ones(len(ids), bool))
    ends = [*its.first[1:], len(ids)]
    pieces = [ids[a:b] for a, b in zip(its.first, ends, strict=False)]
    return Cut(text, its.spans.tolist(), pieces)


def _given(tokenizer, sentences, strict):
    """Sentences of words; each is read with blanks between them."""
    texts = [" ".join(words) for words in sentences]
    if strict:
        refuse_surrogates(texts)
    cuts = []
    for text, words, ids in zip(
        texts, sentences, word_windows.word_pieces(tokenizer, sentences), strict=True
    ):
        lengths = np.array([len(word) for word in words], int)
        starts = np.cumsum(lengths + 1) - lengths - 1
        cuts.append(Cut(text, [*zip(starts, starts + lengths, strict=True)], ids))
    return cuts


def _shares(step, rows, head, pad_id, longest, batch_size, progress) -> np.ndarray:
    """Probabilities of the labels of all words, `[W, C]`."""
    shares = np.zeros((len(rows.row), head.num_labels), np.float32)
    if not rows.ids:
        return shares
    source = RaggedRows(
        {"input_ids": rows.ids, "token_type_ids": rows.types},
        fill={"input_ids": pad_id, "token_type_ids": 0},
        columns={},
        longest=longest,
    )
    length = batching.bucket(int(source.lengths.max()), longest)
    batch = source.gather(np.arange(len(source)), length)
    jitted.check_ids(batch, head.encoder.config)
    size = min(batch_size, batching.power_of_two(len(source)))
    # Words stand in the order of their rows.
    first = np.searchsorted(rows.row, np.arange(len(source) + 1))
    with batching.bar_of(len(source), "rows", progress) as bar:
        for answer in batching.run(step, batch, size, longest):
            for row, output in zip(answer.rows, answer.output, strict=True):
                words = slice(first[row], first[row + 1])
                shares[words] = output[rows.position[words]]
            bar.update(len(answer.rows))
    return shares


@functools.partial(jax.jit, static_argnums=0)
def _probabilities(head, params, batch) -> jax.Array:
    """`[B, L, C]`."""
    logits = head.apply({"params": params}, **batch)
    return jax.nn.softmax(logits.astype(jnp.float32))
