"""`Model.embed`: vectors of texts, or of their words."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from bert_jax.inference import batching, checks, jitted
from bert_jax.inference.word_alignment import Words, word_pieces, word_vectors
from bert_jax.pretrained import Pooling
from bert_jax.tokenizers.text import listed

if TYPE_CHECKING:
    from bert_jax.inference.model import Model

# Instead of a pooling: a vector for each word.
TOKENS = "tokens"


def embed(
    model: "Model",
    texts: str | Sequence[str],
    pooling: str | None,
    layers: Sequence[int],
    normalize: bool | None,
    batch_size: int,
    prompt: str | None,
) -> np.ndarray | list[Words]:
    """See `Model.embed`."""
    texts = listed(texts, "texts")
    layers = checks.check_layers(layers, model.config)
    if pooling == TOKENS:
        return embed_words(model, texts, layers, batch_size)
    settings = _settings(model.pooling or Pooling(), pooling, normalize)
    if settings.dense and layers != (-1,):
        raise ValueError(
            f"layers={layers}, but the dense layers of this model read the last one; "
            "give a pooling too, such as mean, to embed without them"
        )
    width = settings.width(model.config.hidden_size * len(layers))
    vectors = np.zeros((len(texts), width), np.float32)
    before = checks.prompt_text(settings, prompt)
    skipped = settings.skipped(before, model.tokenizer)
    parts = model.encoder, layers, skipped, settings, model.params["encoder"]
    step = functools.partial(jitted.pooled, *parts)
    if before:
        texts = [before + text for text in texts]
    for result in batching.run_texts(model, step, texts, batch_size=batch_size):
        vectors[result.rows] = result.output
    return vectors


def _settings(default: Pooling, mode: str | None, normalize: bool | None) -> Pooling:
    """The pooling of a checkpoint, changed as a call says."""
    normalize = default.normalize if normalize is None else normalize
    if mode is None:
        return dataclasses.replace(default, normalize=normalize)
    return dataclasses.replace(default, modes=(mode,), normalize=normalize, dense=())


def embed_words(
    model: "Model", texts: list[str], layers: tuple[int, ...], batch_size: int
) -> list[Words]:
    """Vectors of words, the hidden states of `layers` side by side."""
    tokenizer = model.check_tokenizer()
    parts = model.encoder, layers, model.params["encoder"]
    step = functools.partial(jitted.states, *parts)
    words: dict[int, Words] = {}
    for result in batching.run_texts(
        model, step, texts, batch_size=batch_size, offsets=True
    ):
        aligned = word_pieces(tokenizer, result.inputs)
        for row, x, pieces in zip(result.rows, result.output, aligned, strict=True):
            words[row] = word_vectors(texts[row], x, pieces)
    return [words[row] for row in range(len(texts))]
