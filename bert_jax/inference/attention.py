"""The verb `attention`: which token looks at which."""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from bert_jax.inference import jitted
from bert_jax.inference.batching import Batch
from bert_jax.models import Bert
from bert_jax.tokenizers import Tokenizer
from bert_jax.views import attention_page, page


@dataclasses.dataclass(frozen=True)
class Attention:
    """Which token looks at which, in every layer and head.

    Attributes:
      tokens: L of them, special ones included.
      weights: `[layers, H, L, M]`, rows sum to 1: `weights[layer, head, i, j]` is how
        much token i looks at token j of `source`.
      segments: `[L]`, 0 in the text and 1 in its pair; None where there is no pair.
      queries, keys: `[layers, H, L, K]` and `[layers, H, M, K]`: each row of the
        weights is the softmax of `queries[layer, head, i] @ keys[layer, head].T /
        K ** 0.5` over the tokens it sees, which local layers limit; None where there is
        more to the weights.
      source: M tokens of another text, which are looked at; None where the tokens look
        at each other.
    """

    tokens: list[str]
    weights: np.ndarray = dataclasses.field(repr=False)
    segments: np.ndarray | None = dataclasses.field(default=None, repr=False)
    queries: np.ndarray | None = dataclasses.field(default=None, repr=False)
    keys: np.ndarray | None = dataclasses.field(default=None, repr=False)
    source: list[str] | None = None

    def save_html(self, path: str | Path) -> None:
        """Writes the page to look through: one file, which needs nothing else."""
        page.write(path, attention_page.page(**vars(self)))

    def _repr_html_(self) -> str:
        return page.framed(attention_page.page(**vars(self)))


def attended(
    encoder: Bert,
    params: Any,
    tokenizer: Tokenizer,
    text: str,
    pair: str | None,
    run: Callable[..., Iterator[Any]],
) -> Attention:
    """See `Model.attention`; `run(step, texts, ...)` gives the answers of batches.

    `params` are those of the encoder.
    """
    demand_string("text", text)
    demand_string("pair", pair or "")
    step = functools.partial(jitted.attention, encoder, params)

    def by_row(batch: Batch) -> Any:
        found = step(batch)
        return {name: jnp.swapaxes(x, 0, 1) for name, x in found.items()}

    pairs = None if pair is None else [pair]
    (answer,) = run(by_row, [text], pairs=pairs, offsets=True)
    inputs = answer.inputs
    real = inputs["attention_mask"][0] > 0
    ids, offsets = inputs["input_ids"][0][real], inputs["offsets"][0][real]
    sown = {name: x[0] for name, x in answer.output.items()}
    weights = sown.pop("weights")[..., real, :][..., real]
    vectors = {name: np.moveaxis(x, 1, 2)[:, :, real] for name, x in sown.items()}
    return Attention(
        [tokenizer.id_to_token(i) for i in ids],
        weights,
        None if pair is None else _segments(ids, offsets, tokenizer.sep_id),
        **vectors,
    )


def demand_string(name: str, value: Any) -> None:
    """Raises ValueError for what is no string."""
    if not isinstance(value, str):
        raise ValueError(f"{name}={value!r:.60}; give one string")


def _segments(ids, offsets, sep_id):
    """The pair begins behind the first separator that stands in no text.

    Token types do not say it: RoBERTa has but one.
    """
    added = (ids == sep_id) & ~offsets.any(1)
    return (np.cumsum(added) - added > 0).astype(np.int32)
