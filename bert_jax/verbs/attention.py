"""The verb `attention`: which token looks at which."""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np

from bert_jax import programs
from bert_jax.batching import Batch
from bert_jax.models import Bert
from bert_jax.tokenizers import Tokenizer


@dataclasses.dataclass(frozen=True)
class Attention:
    """Which token looks at which: `weights` `[layers, heads, L, L]`, rows sum to 1."""

    tokens: list[str]
    weights: np.ndarray


def attended(
    encoder: Bert,
    params: Any,
    tokenizer: Tokenizer,
    text: str,
    pair: str | None,
    run: Callable[..., Iterator[Any]],
) -> Attention:
    """See `Model.attention`; `run(step, texts, pairs=)` gives the answers of batches.

    `params` are those of the encoder.
    """
    for name, value in (("text", text), ("pair", pair or "")):
        if not isinstance(value, str):
            raise ValueError(f"{name}={value!r:.60}; give one string")
    step = functools.partial(programs.inside, encoder, params)

    def by_row(batch: Batch) -> Any:
        return batch["input_ids"], jnp.swapaxes(step(batch)[1], 0, 1)

    (answer,) = run(by_row, [text], pairs=None if pair is None else [pair])
    ids, weights = answer.output
    real = answer.inputs["attention_mask"][0] > 0
    tokens = [tokenizer.id_to_token(i) for i in ids[0][real]]
    return Attention(tokens, weights[0][..., real, :][..., real])
