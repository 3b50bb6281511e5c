"""Documents -> the records of one shard: a pure function of (documents, seed, index).

Any engine that maps functions over groups of documents (Apache Beam, Ray Data, Spark)
can run `prepare_shard`; `prepare` is the engine for one machine.
"""

import random
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

import numpy as np

from bert_jax.data import corpus
from bert_jax.data.corpus import Document
from bert_jax.data.packing import pack
from bert_jax.data.pairs import Tokens, flatten, make_sequences
from bert_jax.data.prepared import Counts
from bert_jax.data.recipe import Recipe
from bert_jax.data.records import fill_rows

_TEXTS_AT_ONCE = 2048  # tokenizers hold a few KB for each text of a call


def prepare_shard(
    documents: Sequence[Document],
    split: str,
    index: int,
    *,
    tokenizer: Any,
    recipe: Recipe,
    format: str = "auto",
) -> tuple[np.ndarray, Counts]:
    """Records [R] of the packed rows of these documents, and what they hold.

    `index` numbers the group within its split and, with the recipe's seed, fixes every
    draw. A record's `tobytes()` is what a reader of the dataset expects. Only the
    train split is paired `dupe_factor` times.
    """
    tokens = _tokenize(documents, tokenizer, format)
    counts = Counts(len(tokens), len(tokens.bounds) - 1, len(tokens.ids))
    layout = recipe.layout(tokenizer.vocab_size)
    if not len(tokens):
        return layout.blank(0), counts
    rng = random.Random(f"{recipe.seed}/{split}/{index}")
    passes = []
    for _ in range(recipe.dupe_factor if split == "train" else 1):
        records, added = _one_pass(tokens, tokenizer, recipe, rng)
        passes.append(records)
        counts += added
    records = np.concatenate(passes)
    order = list(range(len(records)))
    rng.shuffle(order)
    return records[order], counts


def unigrams(records: np.ndarray, tokenizer: Any) -> np.ndarray:
    """How often each token that masking may hide stands in the records: int64 [V]."""
    counts = np.bincount(records["input_ids"].ravel(), minlength=tokenizer.vocab_size)
    counts[[tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id]] = 0
    return counts


def _tokenize(documents: Iterable[Document], tokenizer: Any, format: str) -> Tokens:
    split = [corpus.sentences(document, format) for document in documents]
    encoded = _encode(chain.from_iterable(split), tokenizer)
    tokens = flatten(list(islice(encoded, len(document))) for document in split)
    largest = int(tokens.ids.max(initial=0))
    if largest >= tokenizer.vocab_size:
        raise ValueError(
            f"the tokenizer gave id {largest} and has vocab_size="
            f"{tokenizer.vocab_size}; does its vocabulary hold a line twice?"
        )
    return tokens


def _encode(texts: Iterable[str], tokenizer: Any) -> Iterator[np.ndarray]:
    """The ids of each text, narrowed to arrays batch by batch to hold little."""
    texts = iter(texts)
    while batch := list(islice(texts, _TEXTS_AT_ONCE)):
        for ids in tokenizer.encode_batch(batch):
            yield np.array(ids, np.int32)


def _one_pass(
    tokens: Tokens, tokenizer: Any, recipe: Recipe, rng: random.Random
) -> tuple[np.ndarray, Counts]:
    """The text paired and packed once: records [R] and their counts."""
    layout = recipe.layout(tokenizer.vocab_size)
    sequences = make_sequences(
        tokens,
        rng,
        pairs=recipe.pairs,
        sequence_length=recipe.sequence_length,
        short_seq_prob=recipe.short_seq_prob,
        sep_id=tokenizer.sep_id,
    )
    lengths = sequences.lengths().sum(1)
    records = fill_rows(
        layout,
        sequences,
        pack(lengths, layout.sequence_length, layout.sequences_per_row),
        cls_id=tokenizer.cls_id,
        sep_id=tokenizer.sep_id,
        pad_id=tokenizer.pad_id,
    )
    return records, Counts(
        sequences=len(lengths),
        labelled=int((sequences.labels >= 0).sum()),
        ones=int((sequences.labels == 1).sum()),
        rows=len(records),
        real_tokens=int(lengths.sum()),
        positions=records["input_ids"].size,
    )
