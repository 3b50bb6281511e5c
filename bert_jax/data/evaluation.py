"""Texts to evaluate vectors with: pairs, triplets and candidates, of files or rows."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bert_jax.data import decoding, labelled_files, retrieval, tables
from bert_jax.data.retrieval import Retrieval

# The kinds of evaluation, with what a row of their data is.
KINDS = {
    "similarity": "two texts and a number",
    "pairs": "two texts and a 1 if they belong together, or a 0",
    "triplets": "an anchor, a positive and a negative",
    "reranking": "a query, and lists of texts as positive and negative",
    "retrieval": "a folder of corpus.jsonl, queries.jsonl and qrels.tsv",
}

ANCHORS = ("anchor", "query", "question", "sentence1", "premise", "text")
PAIRS = ("sentence2", "pair", "text2", "positive", "hypothesis", "document")
LABELS = ("score", "similarity", "label")


@dataclasses.dataclass(frozen=True)
class Pairs:
    """Pairs of texts with numbers; `binary` if these are classes, 0 and 1."""

    firsts: list[str]
    seconds: list[str]
    labels: list[float]
    binary: bool


@dataclasses.dataclass(frozen=True)
class Triplets:
    """Anchors with a positive and a negative each."""

    anchors: list[str]
    positives: list[str]
    negatives: list[str]


@dataclasses.dataclass(frozen=True)
class Candidates:
    """Queries with documents to rank, relevant ones and others."""

    queries: list[str]
    positives: list[list[str]]
    negatives: list[list[str]]


Data = Pairs | Triplets | Candidates | Retrieval

Row = Mapping[str, Any] | Sequence[Any]


def read(
    data: str | os.PathLike | Sequence[Row] | Data,
    kind: str | None = None,
    split: str = "test",
) -> Data:
    """The data of an evaluation from a folder, a file or rows in memory.

    Args:
      data: a folder for retrieval, a file of another kind, or rows: tuples, or
        dictionaries with the names that columns have in files.
      kind: one of `KINDS`; None detects it.
      split: of the judgements of a folder.

    Raises:
      ValueError: for data that is malformed or of another kind, with the place.
    """
    if kind is not None and kind not in KINDS:
        raise ValueError(f"kind={kind!r} is unknown; choose one of {', '.join(KINDS)}")
    if isinstance(data, Pairs | Triplets | Candidates | Retrieval):
        return data
    if isinstance(data, str | os.PathLike):
        if kind == "retrieval" or Path(data).is_dir():
            return retrieval.read(data, split)
        return _read_file(os.fspath(data), kind)
    rows = list(data)
    if not rows:
        raise ValueError("there is no row to evaluate; give at least one")
    places = [f"row {number}" for number in range(len(rows))]
    return _of_rows(places, [_named(row) for row in rows], kind)


def _read_file(path: str, kind: str | None) -> Data:
    if decoding.ending(path) in labelled_files.OBJECTS:
        problems = labelled_files.Problems(path)
        objects = list(labelled_files.read_objects(path, problems))
        problems.raise_any()
        if not objects:
            raise ValueError(f"{path} is empty; it needs rows of texts")
        places = [f"{path}:{line}" for line, _ in objects]
        return _of_rows(places, [row for _, row in objects], kind)
    problems = labelled_files.Problems(path)
    _, lines, rows = labelled_files.read_cells(path, problems)
    problems.raise_any()
    names = [str(name).strip().lower() for name in rows[0]] if rows else []
    if {"positive", "negative"} <= set(names) and kind in (None, "triplets"):
        rows, lines = labelled_files.drop_irregular(rows, lines, len(names), problems)
        problems.raise_any()
        places = [f"{path}:{line}" for line in lines[1:]]
        named = [dict(zip(names, row, strict=True)) for row in rows[1:]]
        return _of_rows(places, named, "triplets")
    if kind in ("triplets", "reranking"):
        raise ValueError(
            f"{path} has no columns positive and negative; {kind} needs {KINDS[kind]}"
        )
    # A file may have both a score and a class, as SICK does.
    score = [i for i, name in enumerate(names) if name in LABELS[:2]][:1]
    columns = tables.Columns(label=str(rows[0][score[0]]).strip()) if score else None
    table = tables.read(path, columns)
    if table.pairs is None or table.labels is None:
        raise ValueError(f"{path} has no pairs; give {KINDS['similarity']} in each row")
    places = [f"{path}:{line}" for line in table.lines]
    rows_of_pairs = zip(table.texts, table.pairs, table.labels, strict=True)
    return _pairs(places, [list(row) for row in rows_of_pairs], kind)


def _named(row: Row) -> Mapping[str, Any]:
    """A row in memory with names for its values."""
    if isinstance(row, Mapping):
        return row
    if not isinstance(row, list | tuple) or len(row) != 3:
        raise ValueError(
            f"{row!r:.60} is no row; give dictionaries, or tuples of two texts and a "
            "number, or of three texts"
        )
    if isinstance(row[1], str) and isinstance(row[2], str):
        return dict(zip(("anchor", "positive", "negative"), row, strict=True))
    if isinstance(row[2], str) or isinstance(row[1], str):
        return dict(zip(("sentence1", "sentence2", "score"), row, strict=True))
    return dict(zip(("query", "positive", "negative"), row, strict=True))


def _of_rows(
    places: list[str], rows: Sequence[Mapping[str, Any]], kind: str | None
) -> Data:
    """Data of rows by name; the first one tells the kind."""
    first = rows[0]
    if "positive" in first and "negative" in first and kind in (None, "triplets"):
        if all(isinstance(first[x], str) for x in ("positive", "negative")):
            columns = [(_anchor(first),), ("positive",), ("negative",)]
            return Triplets(*_columns(places, rows, columns))
    if "positive" in first and "negative" in first and kind in (None, "reranking"):
        return _candidates(places, rows)
    if kind in ("triplets", "reranking"):
        raise ValueError(
            f"{places[0]}: the fields are {', '.join(first)}; {kind} needs "
            f"{KINDS[kind]}"
        )
    firsts, seconds = _columns(places, rows, [(_anchor(first),), PAIRS])
    labels = [next((row[x] for x in LABELS if x in row), None) for row in rows]
    return _pairs(
        places, [list(x) for x in zip(firsts, seconds, labels, strict=True)], kind
    )


def _anchor(row: Mapping[str, Any]) -> str:
    return next((name for name in ANCHORS if name in row), ANCHORS[0])


def _columns(
    places: list[str],
    rows: Sequence[Mapping[str, Any]],
    columns: Sequence[Sequence[str]],
) -> list[list[str]]:
    """Texts by column; each column has one of several names."""
    result: list[list[str]] = [[] for _ in columns]
    for place, row in zip(places, rows, strict=True):
        for names, texts in zip(columns, result, strict=True):
            name = next((x for x in names if x in row), names[0])
            texts.append(_text(place, name, row.get(name)))
    return result


def _text(place: str, name: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        problem = "is empty" if value in ("", None) else f"is {value!r:.60}, no text"
        raise ValueError(f"{place}: {name} {problem}; fill it in or delete the row")
    return value


def _candidates(places: list[str], rows: Sequence[Mapping[str, Any]]) -> Candidates:
    (queries,) = _columns(places, rows, [(_anchor(rows[0]),)])
    lists: dict[str, list[list[str]]] = {"positive": [], "negative": []}
    for place, row in zip(places, rows, strict=True):
        for name, column in lists.items():
            texts = row.get(name)
            texts = [texts] if isinstance(texts, str) else texts
            if not isinstance(texts, list | tuple) or not texts:
                raise ValueError(
                    f"{place}: {name} is {texts!r:.60}; give at least one text"
                )
            column.append([_text(place, name, text) for text in texts])
    return Candidates(queries, lists["positive"], lists["negative"])


def _pairs(places: list[str], rows: list[list[Any]], kind: str | None) -> Pairs:
    labels = []
    for place, (_, _, label) in zip(places, rows, strict=True):
        try:
            labels.append(float(label))
        except (TypeError, ValueError):
            raise ValueError(
                f"{place}: the label is {label!r:.60}; give {KINDS['similarity']}"
            ) from None
    binary = set(labels) <= {0.0, 1.0} if kind is None else kind == "pairs"
    if binary and not set(labels) <= {0.0, 1.0}:
        wrong = next(x for x in labels if x not in (0.0, 1.0))
        place = places[labels.index(wrong)]
        raise ValueError(f"{place}: the label is {wrong}; pairs have 0 or 1")
    if len(set(labels)) < 2:
        raise ValueError(
            f"every pair has the label {labels[0]}; give "
            "others too, to compare similarities with"
        )
    return Pairs(
        [_text(place, "text", row[0]) for place, row in zip(places, rows, strict=True)],
        [_text(place, "pair", row[1]) for place, row in zip(places, rows, strict=True)],
        labels,
        binary,
    )
