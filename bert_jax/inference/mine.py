"""Hard negatives: documents that are near to an anchor without being its positive."""

import dataclasses
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bert_jax.data import text_groups
from bert_jax.files import counted
from bert_jax.inference import checks, rank
from bert_jax.inference import index as indexes
from bert_jax.inference.index import Corpus, Index
from bert_jax.inference.model import Model, check_model
from bert_jax.inference.nearest import embed_as, measure_of, nearest
from bert_jax.inference.search import is_index, opened

SAMPLING = ("top", "random")
FORMS = ("groups", "triplets", "pairs")

# Anchors whose candidates a reranking model scores together.
BLOCK = 256

Score = Callable[[list[tuple[str, str]]], Any]


@dataclasses.dataclass(frozen=True)
class Rules:
    """The candidates that count as negatives; see `mine`."""

    num_negatives: int = 3
    range_min: int = 0
    range_max: int | None = None
    min_score: float | None = None
    max_score: float | None = None
    absolute_margin: float | None = None
    relative_margin: float | None = None
    sampling: str = "top"

    def validate(self) -> None:
        """Raises ValueError with the field, its value and the allowed values."""
        checks.check_count("num_negatives", self.num_negatives)
        if self.range_min < 0:
            raise ValueError(f"range_min={self.range_min}; it must be at least 0")
        least = self.range_min + self.num_negatives
        if self.range_max is not None and self.range_max < least:
            raise ValueError(
                f"range_max={self.range_max} leaves no room for num_negatives="
                f"{self.num_negatives} after range_min={self.range_min}; it must be at "
                f"least {least}"
            )
        if self.sampling not in SAMPLING:
            raise ValueError(
                f"sampling={self.sampling!r} is unknown; choose one of "
                f"{', '.join(SAMPLING)}"
            )

    def limit(self, positives: int) -> int:
        """`range_max`, or enough that some candidates may be left out."""
        if self.range_max is not None:
            return self.range_max
        filters = (self.absolute_margin, self.relative_margin, self.max_score)
        spare = 1 if all(x is None for x in (*filters, self.min_score)) else 10
        return self.range_min + spare * self.num_negatives + positives

    def choose(
        self,
        scores: np.ndarray,
        positives: np.ndarray,
        limit: int,
        draw: np.random.Generator,
    ) -> np.ndarray:
        """The numbers of the negatives among candidates, the highest score first.

        Args:
          scores: of the candidates `[N]`.
          positives: the scores of the anchor's positives.
          limit: the value of `range_max`.
          draw: random numbers for `sampling`.
        """
        # With several positives the most distant one sets the margin.
        nearest_allowed, allowed = positives.min(), np.ones(len(scores), bool)
        if self.absolute_margin is not None:
            allowed &= scores + np.float32(self.absolute_margin) <= nearest_allowed
        if self.relative_margin is not None:
            margin = abs(nearest_allowed) * np.float32(self.relative_margin)
            allowed &= scores <= nearest_allowed - margin
        if self.max_score is not None:
            allowed &= scores <= self.max_score
        if self.min_score is not None:
            allowed &= scores >= self.min_score
        order = np.argsort(-scores, kind="stable")
        order = order[allowed[order]][self.range_min : limit]
        if self.sampling == "random" and len(order) > self.num_negatives:
            places = draw.choice(len(order), self.num_negatives, replace=False)
            order = order[np.sort(places)]
        return order[: self.num_negatives]


def mine(
    model: Model,
    pairs: str | os.PathLike | Sequence[Sequence[str] | Mapping[str, str]],
    corpus: Corpus | Index | None = None,
    *,
    num_negatives: int = 3,
    range_min: int = 0,
    range_max: int | None = None,
    min_score: float | None = None,
    max_score: float | None = None,
    absolute_margin: float | None = None,
    relative_margin: float | None = None,
    sampling: str = "top",
    reranker: Model | Score | None = None,
    form: str = "groups",
    scores: bool = False,
    seed: int = 0,
    batch_size: int = 32,
) -> list[dict[str, Any]]:
    """Pairs with hard negatives: documents that are similar to the anchor but wrong.

    Args:
      model: embeds anchors as queries and the others as documents.
      pairs: anchors with a positive each, in a file or as tuples or dictionaries; an
        anchor may have several.
      corpus: the documents to choose from, as in `Model.search`; the positives belong
        to it unless it is an index. None takes the positives alone.
      num_negatives: negatives for each pair.
      range_min, range_max: ranks, among the candidates that pass all other rules, of
        the first to take and of the first not to take. None takes enough of them.
      min_score, max_score: limits of a negative's score.
      absolute_margin: a negative scores at least this much less than the positive.
      relative_margin: the same as a share of the positive's score.
      sampling: "top" takes the highest scores, "random" any in the range.
      reranker: gives the scores in place of the vectors, to the candidates that these
        are near to: a model for `Model.rank`, or a function of a list of pairs.
      form: "groups" returns `anchor`, `positive`, `negative_1` …, for pairs with all
        negatives; "triplets" a row for each `negative`; "pairs" `query`, `document` and
        `label`, 1 or 0.
      scores: adds `scores`, of the positive and of each negative (in "pairs" `score`).
      seed: of "random".
      batch_size: texts computed together.

    Raises:
      ValueError: for wrong arguments or pairs, and where no candidate passes.

    The rules are those of `mine_hard_negatives` in sentence-transformers.

    >>> rows = [("a b", "a b c"), ("d", "d e"), ("f g", "f h")]
    >>> mined = mine(model, rows, num_negatives=1)
    >>> len(mined), list(mined[0])
    (3, ['anchor', 'positive', 'negative_1'])
    """
    check_model("mine", model)
    rules = Rules(
        *(num_negatives, range_min, range_max, min_score, max_score),
        *(absolute_margin, relative_margin, sampling),
    )
    rules.validate()
    if form not in FORMS:
        raise ValueError(f"form={form!r} is unknown; choose one of {', '.join(FORMS)}")
    measure = measure_of(model)
    positives = positives_by_anchor(pairs)
    index = _index(model, positives, corpus, batch_size)
    anchors, most = list(positives), max(map(len, positives.values()))
    limit = rules.limit(most)
    vectors = embed_as(model, "query", anchors, batch_size)
    rows = nearest(vectors, index.vectors(), limit + most, measure)
    candidates = [
        _candidates(index, of_anchor, values, positives[anchor])
        for anchor, of_anchor, values in zip(
            anchors, rows.rows, rows.scores, strict=True
        )
    ]
    own = _positive_scores(model, positives, vectors, measure, batch_size)
    if reranker is not None:
        score = _score_of(reranker, batch_size)
        own, candidates = _reranked(score, positives, candidates)
    draw = np.random.default_rng(seed)
    mined: list[dict[str, Any]] = []
    few = total = 0
    for anchor, of_anchor, (texts, values) in zip(
        anchors, own, candidates, strict=True
    ):
        chosen = rules.choose(values, of_anchor, limit, draw)
        negatives = [(texts[i], float(values[i])) for i in chosen]
        few += len(negatives) < num_negatives
        total += len(negatives)
        with_scores = zip(positives[anchor], of_anchor.tolist(), strict=True)
        mined += _rows(anchor, list(with_scores), negatives, form, scores, rules)
    if not total:
        raise ValueError(
            "no candidate passes all rules; lower the margins, widen range_max or "
            "give a larger corpus"
        )
    if few:
        left_out = ", and are left out" if form == "groups" else ""
        warnings.warn(
            f"{few:,} of {counted(len(anchors), 'anchor')} have fewer than "
            f"{num_negatives} negatives{left_out}; lower the margins or widen "
            "range_max for more",
            stacklevel=2,
        )
    return mined


def positives_by_anchor(
    pairs: str | os.PathLike | Sequence[Sequence[str] | Mapping[str, str]],
) -> dict[str, list[str]]:
    """The positives of each anchor, each once, in their order."""
    if isinstance(pairs, str | os.PathLike):
        groups = text_groups.read(pairs)
        if len(groups.texts[0]) < 2:
            raise ValueError(f"{pairs} has single texts; give an anchor and a positive")
        rows: list[Any] = [row[:2] for row in groups.texts]
    else:
        rows = list(pairs)
    result: dict[str, list[str]] = {}
    for number, row in enumerate(rows):
        values = row
        if isinstance(row, Mapping):
            values = [row.get(name) for name in ("anchor", "positive")]
        values = list(values)[:2]
        if len(values) < 2 or not all(isinstance(x, str) and x.strip() for x in values):
            raise ValueError(
                f"pairs[{number}] is {row!r:.60}; give an anchor and a positive, two "
                "texts"
            )
        anchor, positive = values
        of_anchor = result.setdefault(anchor, [])
        if positive not in of_anchor:
            of_anchor.append(positive)
    if not result:
        raise ValueError("there is no pair; give at least one anchor and its positive")
    return result


def _index(
    model: Model,
    positives: Mapping[str, Sequence[str]],
    corpus: Corpus | Index | None,
    batch_size: int,
) -> Index:
    """The corpus with the positives, each text once."""
    if isinstance(corpus, Index) or is_index(corpus):
        return opened(model, corpus, batch_size)
    texts = [text for of_anchor in positives.values() for text in of_anchor]
    if corpus is not None:
        texts = [*(x.text for x in indexes.documents_of(corpus)()), *texts]
    return model.index(list(dict.fromkeys(texts)), None, batch_size)


def _candidates(
    index: Index, rows: np.ndarray, scores: np.ndarray, positives: Sequence[str]
) -> tuple[list[str], np.ndarray]:
    """Texts and scores of rows that are no positives, each text once."""
    scored = zip(rows.tolist(), scores, strict=True)
    texts: dict[str, Any] = {}
    for row, score in scored:
        texts.setdefault(index.document(row)[1], score)
    for text in positives:
        texts.pop(text, None)
    return list(texts), np.array(list(texts.values()), np.float32)


def _positive_scores(
    model: Model,
    positives: Mapping[str, Sequence[str]],
    vectors: np.ndarray,
    measure: str,
    batch_size: int,
) -> list[np.ndarray]:
    """For each anchor, the similarities of its positives."""
    texts = list(dict.fromkeys(text for x in positives.values() for text in x))
    places = {text: i for i, text in enumerate(texts)}
    of_texts = embed_as(model, "document", texts, batch_size)
    result = []
    for vector, of_anchor in zip(vectors, positives.values(), strict=True):
        own = of_texts[[places[text] for text in of_anchor]]
        near = nearest(vector[None], [own], len(own), measure)
        result.append(near.scores[0][np.argsort(near.rows[0])])
    return result


def _score_of(reranker: Model | Score, batch_size: int) -> Score:
    """The function of pairs that a reranking model is."""
    if not isinstance(reranker, Model):
        return reranker
    rank.check_head(reranker.head)

    def score(pairs: list[tuple[str, str]]) -> np.ndarray:
        anchors, documents = map(list, zip(*pairs, strict=True))
        return rank.pair_scores(reranker, anchors, documents, batch_size)

    return score


def _reranked(
    score: Score,
    positives: Mapping[str, Sequence[str]],
    candidates: Sequence[tuple[list[str], np.ndarray]],
) -> tuple[list[np.ndarray], list[tuple[list[str], np.ndarray]]]:
    """The scores of a reranking model, of positives and of candidates."""
    jobs = [
        (anchor, own, texts)
        for (anchor, own), (texts, _) in zip(positives.items(), candidates, strict=True)
    ]
    of_positives, of_candidates = [], []
    for first in range(0, len(jobs), BLOCK):
        block = jobs[first : first + BLOCK]
        pairs = [(a, text) for a, own, texts in block for text in (*own, *texts)]
        values = np.asarray(score(pairs), np.float32)
        if values.shape != (len(pairs),):
            raise ValueError(
                f"reranker returned the shape {list(values.shape)} for "
                f"{len(pairs)} pairs; it must return a number for each"
            )
        sizes = [size for _, own, texts in block for size in (len(own), len(texts))]
        parts = np.split(values, np.cumsum(sizes)[:-1])
        of_positives += parts[::2]
        of_candidates += [
            (texts, x) for (_, _, texts), x in zip(block, parts[1::2], strict=True)
        ]
    return of_positives, of_candidates


def _rows(
    anchor: str,
    positives: Sequence[tuple[str, float]],
    negatives: Sequence[tuple[str, float]],
    form: str,
    scores: bool,
    rules: Rules,
) -> Iterator[dict[str, Any]]:
    """The rows of one anchor in a form."""
    if form == "pairs":
        labelled = [(*x, 1) for x in positives] + [(*x, 0) for x in negatives]
        for text, score, label in labelled:
            row: dict[str, Any] = {"query": anchor, "document": text, "label": label}
            yield row | ({"score": score} if scores else {})
        return
    for positive, own in positives:
        start = {"anchor": anchor, "positive": positive}
        if form == "triplets":
            for text, score in negatives:
                more = {"scores": [own, score]} if scores else {}
                yield start | {"negative": text} | more
        elif len(negatives) == rules.num_negatives:
            texts = {f"negative_{i}": x for i, (x, _) in enumerate(negatives, 1)}
            more = {"scores": [own, *(x for _, x in negatives)]} if scores else {}
            yield start | texts | more
