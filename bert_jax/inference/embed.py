"""The verb `embed`: vectors of texts, or of their words."""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from bert_jax.inference import jitted
from bert_jax.inference.word_alignment import Words, pieces, words_of
from bert_jax.models import Bert
from bert_jax.pretrained import Pooling
from bert_jax.tokenizers import Tokenizer
from bert_jax.tokenizers.text import listed

Run = Callable[..., Iterator[Any]]

# Asked for in place of a pooling, it gives a vector for each word.
TOKENS = "tokens"


def embedded(
    encoder: Bert,
    params: Any,
    tokenizer: Tokenizer,
    texts: str | Sequence[str],
    how: Pooling | None,
    layers: Sequence[int],
    run: Run,
) -> np.ndarray | list[Words]:
    """See `Model.embed`; `run(step, texts)` gives the answers of batches.

    `params` are those of the encoder; with `how` None the vectors are those of words.
    """
    texts = listed(texts, "texts")
    layers = jitted.check_layers(layers, encoder.config)
    if how is None:
        step = functools.partial(jitted.states, encoder, layers, params)
        return _words(tokenizer, texts, step, run)
    width = encoder.config.hidden_size * len(layers) * len(how.modes)
    vectors = np.zeros((len(texts), width), np.float32)
    step = functools.partial(jitted.pooled, encoder, layers, how, params)
    prompted = [how.prompt + text for text in texts] if how.prompt else texts
    for answer in run(step, prompted):
        vectors[answer.rows] = answer.output
    return vectors


def resolved(
    said: Pooling, pooling: str | None, normalize: bool | None
) -> Pooling | None:
    """What a checkpoint says of pooling and what a call asks for; None for words."""
    if pooling == TOKENS:
        return None
    modes = said.modes if pooling is None else (pooling,)
    return Pooling(
        modes, said.normalize if normalize is None else normalize, said.prompt
    )


def _words(tokenizer, texts, step, run) -> list[Words]:
    found: list[Any] = [None] * len(texts)
    for answer in run(step, texts, offsets=True):
        rows = pieces(tokenizer, answer.inputs)
        for row, x, its in zip(answer.rows, answer.output, rows, strict=True):
            found[row] = words_of(texts[row], x, its)
    return found
