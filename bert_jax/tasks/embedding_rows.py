"""Rows of tokens to train sentence vectors on, with prompts and vectors of others."""

from collections.abc import Mapping, Sequence

import numpy as np

from bert_jax.data.distinct_texts import NONE
from bert_jax.data.ragged import ChoiceRows, RaggedRows
from bert_jax.data.text_groups import LABELLED, TextGroups
from bert_jax.inference import nearest
from bert_jax.inference.checks import Prompted
from bert_jax.inference.model import Model
from bert_jax.tokenizers import Tokenizer

SEQUENCES = ("input_ids", "token_type_ids")

# Texts that are tokenized, or embedded, together.
CHUNK, BATCH = 1024, 64

# The class of a held-out label that is not in the training file.
UNKNOWN = -1


def rows_of(
    groups: TextGroups,
    tokenizer: Tokenizer,
    max_length: int,
    prompts: Sequence[str],
    columns: Mapping[str, np.ndarray],
    distinct: bool = False,
) -> ChoiceRows:
    """Rows of tokens `[N, C, L]`.

    Args:
      groups: the texts of a file; one that is missing has no token.
      tokenizer, max_length: of the texts.
      prompts: text before those of each column.
      columns: further arrays `[N, ...]`.
      distinct: True where no batch is to have a text twice.
    """
    texts = [
        text and prompts[c] + text for row in groups.texts for c, text in enumerate(row)
    ]
    sequences: dict[str, list[np.ndarray]] = {name: [] for name in SEQUENCES}
    for start in range(0, len(texts), CHUNK):
        part = texts[start : start + CHUNK]
        batch = tokenizer(part, max_length=max_length)
        real = batch["attention_mask"] > 0
        for name, sequence in sequences.items():
            rows = zip(part, batch[name], real, strict=True)
            sequence += [x[y] if text else _NOTHING for text, x, y in rows]
    return ChoiceRows(
        RaggedRows(
            sequences,
            fill={"input_ids": tokenizer.pad_id, "token_type_ids": 0},
            columns={},
            max_length=max_length,
            pads_left=tokenizer.specials.pads_left,
        ),
        choices=len(groups.texts[0]),
        columns=columns,
        texts=numbered(groups.texts) if distinct else None,
    )


_NOTHING = np.zeros(0, np.int32)


def numbered(texts: Sequence[Sequence[str]]) -> np.ndarray:
    """int64 `[N, C]`: equal numbers for equal texts, `NONE` for missing ones.

    It is `NONE` too for negatives that are no anchor and no positive of any row: they
    are a negative of every row of a batch.

    >>> numbered([("a", "b", "c"), ("b", "d", "a"), ("e", "f", "")]).tolist()
    [[0, 1, -1], [1, 2, 0], [3, 4, -1]]
    """
    flat = dict.fromkeys(text for row in texts for text in row[:2] if text)
    numbers = {text: i for i, text in enumerate(flat)}
    return np.array([[numbers.get(x, NONE) for x in row] for row in texts], np.int64)


def labels_of(
    groups: TextGroups, classes: Mapping[str, int], max_score: float
) -> dict[str, np.ndarray]:
    """`labels` as the losses read them; {} for rows without.

    They are float32 scores `[N, C - 1]`, or margins `[N, C - 2]`, divided by
    `max_score`, or int32 classes `[N]` by the numbers of `classes`.
    """
    if groups.labels is None:
        return {}
    if groups.kind == LABELLED:
        numbers = [classes.get(str(label), UNKNOWN) for label in groups.labels]
        return {"labels": np.array(numbers, np.int32)}
    return {"labels": np.array(groups.labels, np.float32) / np.float32(max_score)}


def prompts_of(pooling: Prompted, columns: int) -> list[str]:
    """The text before those of each column: of queries, and then of documents.

    A single column has the default prompt, and so has a side without one of its own.
    """
    if columns == 1:
        return [pooling.prompt]
    prompts = dict(pooling.prompts)
    query, document = (
        next((prompts[x] for x in names if x in prompts), pooling.prompt)
        for names in nearest.PROMPTS.values()
    )
    return [query, *[document] * (columns - 1)]


def vectors_of(model: Model, groups: TextGroups) -> np.ndarray:
    """A model's vectors of all texts, float32 `[N, C, D]`; 0 for missing texts.

    The model puts its own prompts before queries and documents. Each text is embedded
    once.
    """
    columns, vectors = list(zip(*groups.texts, strict=True)), []
    for c, column in enumerate(columns):
        places = {text: i for i, text in enumerate(dict.fromkeys(column))}
        if len(columns) == 1:
            table = np.asarray(model.embed(list(places), batch_size=BATCH))
        else:
            side = "document" if c else "query"
            table = nearest.embed_as(model, side, list(places), BATCH)
        exists = np.array([[bool(text)] for text in column])
        vectors.append(np.where(exists, table[[places[x] for x in column]], 0))
    return np.stack(vectors, axis=1).astype(np.float32)


def scores_of(model: Model, groups: TextGroups) -> np.ndarray:
    """A cross-encoder's scores of each first text with the others, `[N, C - 1]`."""
    pairs = [(row[0], text) for row in groups.texts for text in row[1:]]
    scores = model.classify(pairs, batch_size=BATCH)
    return np.array(scores, np.float32).reshape(len(groups), -1)
