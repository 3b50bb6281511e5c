"""`Model.embed_tokens`: vectors of tokens for late interaction, and their score."""

import dataclasses
import functools
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from bert_jax.files import counted
from bert_jax.inference import batching, checks
from bert_jax.models import late_interaction
from bert_jax.models.pooling import normalized
from bert_jax.pretrained import LateInteraction
from bert_jax.pretrained.dense import Dense
from bert_jax.tokenizers import Tokenizer
from bert_jax.tokenizers.text import listed

if TYPE_CHECKING:
    from bert_jax.inference.model import Model

KINDS = ("document", "query")

# Queries and documents that are compared at once.
QUERIES, DOCUMENTS = 16, 128


def embed_tokens(
    model: "Model", texts: str | Sequence[str], kind: str, batch_size: int
) -> list[np.ndarray]:
    """See `Model.embed_tokens`."""
    late = model.late
    if late is None:
        raise ValueError(
            "this model has no settings of late interaction; load a ColBERT model, or "
            "train one with finetune(model, 'embed_tokens', …)"
        )
    if kind not in KINDS:
        raise ValueError(f"kind={kind!r} is unknown; choose one of {', '.join(KINDS)}")
    checks.check_count("batch_size", batch_size)
    texts = listed(texts, "texts")
    run = _queries if kind == "query" else _documents
    vectors: dict[int, np.ndarray] = {}
    for rows, output, counts in run(model, late, texts, batch_size):
        for row, x, counted_tokens in zip(rows, output, counts, strict=True):
            vectors[row] = x[counted_tokens]
    return [vectors[row] for row in range(len(texts))]


# Numbers of texts, vectors of their tokens `[n, L, E]`, and which of these count.
Part = tuple[np.ndarray, np.ndarray, np.ndarray]


def _documents(
    model: "Model", late: LateInteraction, texts: list[str], batch_size: int
) -> Iterator[Part]:
    tokenizer = model.check_tokenizer()
    skipped = skipped_ids(late, tokenizer)
    texts = [late.document_prompt + text for text in texts]
    parts = model.encoder, late.normalize, model.params["encoder"], late.dense
    step = functools.partial(_vectors, *parts)
    for result in batching.run_texts(model, step, texts, batch_size=batch_size):
        is_real = result.inputs["attention_mask"] > 0
        counts = is_real & ~np.isin(result.inputs["input_ids"], skipped)
        yield result.rows, result.output, counts


def _queries(
    model: "Model", late: LateInteraction, texts: list[str], batch_size: int
) -> Iterator[Part]:
    tokenizer = model.check_tokenizer()
    # A kernel may compute no vectors for tokens that no other one attends to.
    encoder = model.encoder.clone(config=plain(model.config))
    parts = encoder, late.normalize, model.params["encoder"], late.dense
    positions, cut = model.config.max_length, 0
    limit = min(late.query_length or model.max_length, positions)
    for start in range(0, len(texts), batch_size):
        part = texts[start : start + batch_size]
        rows = query_rows(late, tokenizer, part, limit, positions)
        cut += rows.cut
        n = len(part)
        full = np.resize(np.arange(n), min(batch_size, batching.power_of_two(n)))
        checks.check_ids(rows.batch, model.config)
        batch = {name: x[full] for name, x in rows.batch.items()}
        output = np.asarray(_vectors(*parts, batch))[:n]
        yield np.arange(start, start + n), output, rows.counts
    if cut:
        message = (
            f"{counted(cut, 'query')} of {len(texts)} had more than "
            f"{limit} tokens, and lost the rest"
        )
        if model.strict:
            raise ValueError(f"{message}; shorten them")
        warnings.warn(message, stacklevel=5)


class QueryRows(NamedTuple):
    """Queries as rows of tokens.

    Attributes:
      batch: the arrays that an encoder reads, `[B, L]`.
      counts: bool `[B, L]`, the tokens whose vectors count.
      cut: the number of queries that lost tokens.
    """

    batch: dict[str, np.ndarray]
    counts: np.ndarray
    cut: int


def query_rows(
    late: LateInteraction,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    limit: int,
    positions: int,
) -> QueryRows:
    """Queries, cut to `limit` tokens and filled up, as far as there are positions."""
    texts = [late.query_prompt + text for text in texts]
    batch = tokenizer(texts, max_length=limit + 1)
    cut = int((batch["attention_mask"].sum(1) > limit).sum())
    if cut:
        batch = tokenizer(texts, max_length=limit)
    longest = batch["input_ids"].shape[1]
    fill_to = min(late.fill_to, positions)
    if fill_to > longest:
        batch = tokenizer(texts, max_length=limit, padding=fill_to)
    is_real = batch["attention_mask"] > 0
    places = np.arange(is_real.shape[1])
    if tokenizer.specials.pads_left:
        places = places[::-1]
    filled = ~is_real & (places < fill_to)
    filler = tokenizer.mask_id
    if late.filler is not None:
        filler = tokenizer.token_to_id(late.filler)
    batch["input_ids"] = np.where(filled, filler, batch["input_ids"]).astype(np.int32)
    if late.attends:
        batch["attention_mask"] = (is_real | filled).astype(np.int32)
    return QueryRows(batch, is_real | filled, cut)


def skipped_ids(late: LateInteraction, tokenizer: Tokenizer) -> np.ndarray:
    """The ids of tokens that documents leave out; words of several pieces have none."""
    pieces = {tokenizer.id_to_token(i): i for i in range(tokenizer.vocab_size)}
    return np.array([pieces[x] for x in late.skipped if x in pieces], np.int32)


def plain(config: Any) -> Any:
    """A config whose attention computes vectors of padding as published BERTs do."""
    return dataclasses.replace(config, attention="plain")


@functools.partial(jax.jit, static_argnums=(0, 1))
def _vectors(
    encoder: nn.Module,
    normalize: bool,
    params: Mapping[str, Any],
    dense: tuple[Dense, ...],
    batch: Mapping[str, Any],
) -> jax.Array:
    """The vectors of tokens, float32 `[B, L, E]`."""
    output: Any = encoder.apply({"params": params}, **batch)
    x = output.astype(jnp.float32)
    for layer in dense:
        x = layer(x)
    return normalized(x) if normalize else x


def maxsim(
    queries: Sequence[np.ndarray],
    documents: Sequence[np.ndarray],
    mean: bool = False,
) -> np.ndarray:
    """The scores of queries with documents, float32 `[N, C]`, from token vectors.

    Each token of a query takes its best product with a token of the document, and these
    are summed (Khattab and Zaharia, 2020, section 3.3). Both go to the device in
    blocks.

    Args:
      queries: N arrays `[L, D]` of `Model.embed_tokens(texts, kind="query")`.
      documents: C arrays `[L, D]`, of documents.
      mean: True divides by the tokens of a query ("meanmaxsim").

    Raises:
      ValueError: for vectors of different widths, or one array in place of a list.

    >>> query, document = np.eye(2, dtype="f4"), np.array([[0.5, 0], [0, 2]], "f4")
    >>> maxsim([query], [document, query])
    array([[2.5, 2. ]], dtype=float32)
    """
    for name, arrays in (("queries", queries), ("documents", documents)):
        if any(np.ndim(x) != 2 for x in arrays):
            raise ValueError(
                f"{name} holds an array of {np.ndim(arrays[0])} axes; give a list of "
                "[L, D] arrays, one for each text"
            )
    widths = sorted({x.shape[1] for x in (*queries, *documents)})
    if len(widths) > 1:
        raise ValueError(
            f"vectors have {' and '.join(map(str, widths))} numbers; use one model for "
            "queries and documents"
        )
    scores = np.zeros((len(queries), len(documents)), np.float32)
    for rows, q, q_mask in _blocks(queries, QUERIES):
        for columns, d, d_mask in _blocks(documents, DOCUMENTS):
            block = np.asarray(_maxsim(q, q_mask, d, d_mask))
            scores[np.ix_(rows, columns)] = block[: len(rows), : len(columns)]
    if mean:
        scores /= np.array([max(len(x), 1) for x in queries], np.float32)[:, None]
    return scores


_maxsim = jax.jit(late_interaction.maxsim)


def _blocks(
    arrays: Sequence[np.ndarray], size: int
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Numbers, vectors `[B, L, D]` and mask `[B, L]` of arrays of similar lengths."""
    lengths = np.array([len(x) for x in arrays], int)
    order = np.argsort(lengths, kind="stable")
    size = min(size, batching.power_of_two(len(arrays)))
    for start in range(0, len(order), size):
        rows = order[start : start + size]
        length = batching.bucket(max(int(lengths[rows[-1]]), 1), 2**20)
        x = np.zeros((size, length, arrays[0].shape[1]), np.float32)
        mask = np.zeros((size, length), np.float32)
        for place, row in enumerate(rows):
            x[place, : lengths[row]] = arrays[row]
            mask[place, : lengths[row]] = 1
        yield rows, x, mask
