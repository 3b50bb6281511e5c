"""`Model.tag` and `Model.entities`: labels of words, and the entities they mark."""

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from bert_jax import metrics
from bert_jax.data import word_windows
from bert_jax.data.ragged import RaggedRows
from bert_jax.inference import batching, checks
from bert_jax.inference.word_alignment import row_pieces
from bert_jax.models import TokenClassifier
from bert_jax.tokenizers import Tokenizer
from bert_jax.tokenizers.text import as_list, check_surrogates, listed

if TYPE_CHECKING:
    from bert_jax.inference.model import Model


class Tag(NamedTuple):
    """A word, its label, its characters in the text, and the label's probability.

    >>> [tag.label in ("O", "B-x") for tag in tagger.tag("a bit")]
    [True, True]
    """

    word: str
    label: str
    start: int
    end: int
    probability: float


class NamedEntity(NamedTuple):
    """Words that are one entity, its type, and its characters in the text.

    `probability` is the mean of those of its words' labels.

    >>> NamedEntity("New York", "LOC", 0, 8, 0.9).type
    'LOC'
    """

    text: str
    type: str
    start: int
    end: int
    probability: float


class SplitText(NamedTuple):
    """A text in words: the characters and the ids of the pieces of each."""

    text: str
    spans: list[tuple[int, int]]
    ids: list[list[int]]


def tag(
    model: "Model",
    texts: str | Sequence[str] | Sequence[Sequence[str]],
    batch_size: int,
) -> list[Tag] | list[list[Tag]]:
    """See `Model.tag`."""
    tags = [tags for _, tags in _tagged(model, texts, batch_size)]
    return tags[0] if isinstance(texts, str) else tags


def entities(
    model: "Model",
    texts: str | Sequence[str] | Sequence[Sequence[str]],
    batch_size: int,
) -> list[NamedEntity] | list[list[NamedEntity]]:
    """See `Model.entities`."""
    check_head(model.head)
    check_entities(model.labels)
    merged = [_merge(*pair) for pair in _tagged(model, texts, batch_size)]
    return merged[0] if isinstance(texts, str) else merged


def check_entities(labels: Sequence[str]) -> None:
    """Raises ValueError for labels that mark no entities."""
    if not metrics.are_entities(labels):
        shown = ", ".join(labels[:5]) or "none"
        raise ValueError(
            f"this model marks no entities: its labels are {shown}, and not O, B-PER, "
            "I-PER and the like; tag the words instead"
        )


def _merge(text: str, tags: list[Tag]) -> list[NamedEntity]:
    """The entities that the labels of a text's words mark."""
    merged = []
    for kind, first, last in metrics.entities([tag.label for tag in tags]):
        words = tags[first:last]
        start, end = words[0].start, words[-1].end
        probability = sum(tag.probability for tag in words) / len(words)
        merged.append(NamedEntity(text[start:end], kind, start, end, probability))
    return merged


def _tagged(model: "Model", texts: Any, batch_size: int) -> list[tuple[str, list[Tag]]]:
    """Each text with its tags; a list of words is a text with blanks between them."""
    check_head(model.head)
    checks.check_count("batch_size", batch_size)
    split = _split(model.check_tokenizer(), texts, model.strict)
    names = model.labels or [f"LABEL_{i}" for i in range(model.head.num_labels)]
    rows = iter(_probabilities_of_words(model, split, batch_size))
    return [
        (
            each.text,
            [
                Tag(each.text[a:b], names[p.argmax()], int(a), int(b), float(p.max()))
                for (a, b), p in zip(each.spans, rows, strict=False)
            ],
        )
        for each in split
    ]


def check_head(head: nn.Module) -> None:
    """Checks that `head` has an output for each token."""
    checks.check_head(
        head,
        (TokenClassifier,),
        "tag words",
        'train one with bert_jax.finetune(model, "tag", train=..., dev=...)',
    )


def _split(tokenizer: Tokenizer, texts: Any, strict: bool) -> list[SplitText]:
    """Texts in words: those of the tokenizer, or those of lists of words."""
    if not isinstance(texts, str):
        texts = as_list(texts, "texts")
        if texts and all(isinstance(text, list | tuple) for text in texts):
            sentences = [listed(x, f"texts[{i}]") for i, x in enumerate(texts)]
            return _join_words(tokenizer, sentences, strict)
    texts = listed(texts, "texts")
    if strict:
        check_surrogates(texts)
    encoded = tokenizer.encode_spans(texts)
    return [
        _group_pieces(tokenizer, text, *pair)
        for text, pair in zip(texts, encoded, strict=True)
    ]


def _group_pieces(
    tokenizer: Tokenizer, text: str, ids: list[int], spans: list[tuple[int, int]]
) -> SplitText:
    """A text in the words that its pieces make."""
    starts = ~tokenizer.is_continuation[ids]
    words = row_pieces(np.reshape(spans, (-1, 2)), starts, np.ones(len(ids), bool))
    ends = [*words.first[1:], len(ids)]
    pieces = [ids[a:b] for a, b in zip(words.first, ends, strict=False)]
    return SplitText(text, words.spans.tolist(), pieces)


def _join_words(
    tokenizer: Tokenizer, sentences: list[list[str]], strict: bool
) -> list[SplitText]:
    """Sentences of words as texts, with a space between two words."""
    texts = [" ".join(words) for words in sentences]
    if strict:
        check_surrogates(texts)
    split = []
    for text, words, ids in zip(
        texts, sentences, word_windows.word_pieces(tokenizer, sentences), strict=True
    ):
        lengths = np.array([len(word) for word in words], int)
        starts = np.cumsum(lengths + 1) - lengths - 1
        spans = [*zip(starts, starts + lengths, strict=True)]
        split.append(SplitText(text, spans, ids))
    return split


def _probabilities_of_words(
    model: "Model", split: list[SplitText], batch_size: int
) -> np.ndarray:
    """Probabilities of the labels of all words, `[W, C]`."""
    tokenizer, max_length = model.check_tokenizer(), model.max_length
    ids = [each.ids for each in split]
    rows = word_windows.lay_out(tokenizer, ids, range(len(split)), max_length)
    probabilities = np.zeros((len(rows.row), model.head.num_labels), np.float32)
    if not rows.ids:
        return probabilities
    source = RaggedRows(
        {"input_ids": rows.ids, "token_type_ids": rows.types},
        fill={"input_ids": tokenizer.pad_id, "token_type_ids": 0},
        columns={},
        max_length=max_length,
    )
    step = functools.partial(_probabilities, model.head, model.params)
    # Words are in the order of their rows.
    first = np.searchsorted(rows.row, np.arange(len(source) + 1))
    for result in batching.run_rows(
        model, step, source, batch_size=batch_size, unit="rows"
    ):
        for row, output in zip(result.rows, result.output, strict=True):
            words = slice(first[row], first[row + 1])
            probabilities[words] = output[rows.position[words]]
    return probabilities


@functools.partial(jax.jit, static_argnums=0)
def _probabilities(
    head: nn.Module, params: Mapping[str, Any], batch: Mapping[str, Any]
) -> jax.Array:
    """`[B, L, C]`."""
    logits: Any = head.apply({"params": params}, **batch)
    return jax.nn.softmax(logits.astype(jnp.float32))
