"""`Model.attention`: how much each token looks at each other."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from bert_jax.files import counted
from bert_jax.inference import batching, checks, jitted
from bert_jax.views import attention_page, page

if TYPE_CHECKING:
    from bert_jax.inference.model import Model


@dataclasses.dataclass(frozen=True, repr=False)
class Attention:
    """Attention between the tokens of a text, in every layer and head.

    Attributes:
      tokens: L tokens, special ones included.
      weights: `[layers, H, L, M]`, rows sum to 1: `weights[layer, head, i, j]` is how
        much token i looks at token j of `source`.
      segments: `[L]`, 0 in the text and 1 in its pair; None for a single text.
      queries, keys: `[layers, H, L, K]` and `[layers, H, M, K]`: each row of the
        weights is the softmax of `queries[layer, head, i] @ keys[layer, head].T /
        K ** 0.5` over the tokens that the layer lets it see; None where the weights
        depend on more than these products.
      source: the M tokens of another text that the tokens look at; None where they look
        at each other.
      specials: names of tokens that are no part of the text, which the page can hide.

    >>> seen = model.attention("a b")
    >>> seen.tokens, seen.weights.shape
    (['[CLS]', 'a', 'b', '[SEP]'], (1, 3, 4, 4))
    >>> seen
    attention: 1 layer, 3 heads each, 4 tokens
    as a page: save_html(path), or in a notebook
    """

    tokens: list[str]
    weights: np.ndarray
    segments: np.ndarray | None = None
    queries: np.ndarray | None = None
    keys: np.ndarray | None = None
    source: list[str] | None = None
    specials: tuple[str, ...] = ()

    def __repr__(self) -> str:
        layers, heads, length, _ = self.weights.shape
        return (
            f"attention: {counted(layers, 'layer')}, {counted(heads, 'head')} each, "
            f"{counted(length, 'token')}\nas a page: save_html(path), or in a notebook"
        )

    def save_html(self, path: str | Path) -> None:
        """Writes an interactive page: one file, which needs nothing else."""
        page.write(path, attention_page.html(**vars(self)))

    def _repr_html_(self) -> str:
        return page.frame(attention_page.html(**vars(self)))


def attention(model: "Model", text: str, pair: str | None) -> Attention:
    """See `Model.attention`."""
    checks.check_string("text", text)
    checks.check_string("pair", "" if pair is None else pair)
    tokenizer = model.check_tokenizer()
    encoder, params = model.encoder, model.params["encoder"]

    def by_row(batch: batching.Batch) -> Any:
        arrays = jitted.attention_arrays(encoder, params, batch)
        return {name: jnp.swapaxes(x, 0, 1) for name, x in arrays.items()}

    pairs = None if pair is None else [pair]
    (result,) = batching.run_texts(
        model, by_row, [text], pairs, batch_size=1, offsets=True
    )
    real = result.inputs["attention_mask"][0] > 0
    ids = result.inputs["input_ids"][0][real]
    offsets = result.inputs["offsets"][0][real]
    arrays = {name: x[0] for name, x in result.output.items()}
    weights = arrays.pop("weights")[..., real, :][..., real]
    vectors = {name: np.moveaxis(x, 1, 2)[:, :, real] for name, x in arrays.items()}
    return Attention(
        [tokenizer.id_to_token(i) for i in ids],
        weights,
        None if pair is None else _segments(ids, offsets, tokenizer.sep_id),
        specials=(tokenizer.specials.cls, tokenizer.specials.sep),
        **vectors,
    )


def _segments(ids: np.ndarray, offsets: np.ndarray, sep_id: int) -> np.ndarray:
    """0 for the tokens of the text, 1 for those of its pair, `[L]`.

    The pair begins after the first separator that the tokenizer added. Token types do
    not tell: RoBERTa has only one.
    """
    added = (ids == sep_id) & ~offsets.any(1)
    return (np.cumsum(added) - added > 0).astype(np.int32)
