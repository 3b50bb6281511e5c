"""`Model.embed_sparse`: a weight for each word of the vocabulary, as sparse rows."""

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from flax import linen as nn

from bert_jax.inference import batching, checks
from bert_jax.models import MaskedLM, Pretraining
from bert_jax.models.sparse import word_weights
from bert_jax.pretrained import SparsePooling
from bert_jax.tokenizers.text import listed

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

    from bert_jax.inference.model import Model


def embed_sparse(
    model: "Model", texts: str | Sequence[str], prompt: str | None, batch_size: int
) -> "csr_matrix":
    """See `Model.embed_sparse`."""
    from scipy.sparse import csr_matrix  # only this method needs it

    check_head(model.head)
    texts = listed(texts, "texts")
    settings = model.sparse or SparsePooling()
    if prefix := checks.prompt_text(settings, prompt):
        texts = [prefix + text for text in texts]
    parts = model.head, settings.pooling, settings.activation, model.params
    step = functools.partial(_weights, *parts)
    rows, values, columns, counts = [], [], [], []
    # Only the weights above 0 of finished batches are held.
    for result in batching.run_texts(model, step, texts, batch_size=batch_size):
        weights = _highest(result.output, settings.most)
        row, column = np.nonzero(weights)
        rows.append(result.rows)
        values.append(weights[row, column])
        columns.append(column.astype(np.int32))
        counts.append(np.bincount(row, minlength=len(weights)))
    width = model.config.vocab_size
    if not texts:
        return csr_matrix((0, width), dtype=np.float32)
    starts = np.concatenate([[0], np.cumsum(np.concatenate(counts))])
    arrays = np.concatenate(values), np.concatenate(columns), starts
    matrix = csr_matrix(arrays, shape=(len(texts), width))
    return matrix[np.argsort(np.concatenate(rows))]


def by_word(model: "Model", row: "csr_matrix") -> dict[str, float]:
    """The weights of one row by word, the highest first."""
    tokenizer = model.check_tokenizer()
    size = tokenizer.vocab_size
    weights = sorted(zip(row.data.tolist(), row.indices.tolist(), strict=True))
    return {tokenizer.id_to_token(i): x for x, i in weights[::-1] if i < size}


def check_head(head: nn.Module) -> None:
    """Checks that `head` scores the words of the vocabulary for every token."""
    checks.check_head(
        head,
        (MaskedLM, Pretraining),
        "make sparse vectors",
        "load a SPLADE model, or train one with finetune(model, 'embed_sparse', …)",
    )


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _weights(
    head: nn.Module,
    pooling: str,
    activation: str,
    params: Mapping[str, Any],
    batch: Mapping[str, Any],
) -> jax.Array:
    weights: Any = head.apply(
        {"params": params},
        **batch,
        pooling=pooling,
        activation=activation,
        method=word_weights,
    )
    return weights


def _highest(weights: np.ndarray, most: int | None) -> np.ndarray:
    """`[B, V]` with all but the `most` highest weights of each row as 0."""
    if most is None or most >= weights.shape[1]:
        return weights
    others = np.argpartition(weights, -most, axis=1)[:, :-most]
    weights = weights.copy()
    np.put_along_axis(weights, others, 0, axis=1)
    return weights
