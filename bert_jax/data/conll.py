"""Sentences with a label for each word, from CoNLL, CoNLL-U and JSONL files.

CoNLL files have a word a line, in columns, and an empty line behind each sentence; a
line -DOCSTART- begins a document (Tjong Kim Sang & De Meulder, 2003).
"""

import dataclasses
import json
import os
import re
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from bert_jax.data.tables import Problems, decoded

DOCUMENT = "-DOCSTART-"

# The columns of Universal Dependencies.
CONLLU = "id form lemma upos xpos feats head deprel deps misc".split()

# How people name the lists of words and of labels in JSONL, the likeliest first.
TOKENS = ("tokens", "words")
LABELS = ("tags", "ner_tags", "labels", "ner", "pos_tags", "upos")

# Blanks of ASCII separate; those of Unicode may be words, as any letter may be.
_BLANKS = re.compile("[ \t]+")


@dataclasses.dataclass(frozen=True)
class Columns:
    """Which columns hold words and labels: a name, a position from 0 (from the end if
    negative), or None to take the first and the last, or those with known names.

    `names` are those of labels that JSONL gives as numbers.
    """

    token: str | int | None = None
    label: str | int | None = None
    names: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Sentences:
    """A file's sentences.

    Attributes:
      path: of the file.
      words, labels: of each sentence; no labels where the file has none.
      lines: of each word.
      documents: the number of each sentence's document, ascending.
      columns: where they were found, for a file of the same kind.
    """

    path: str
    words: list[list[str]]
    labels: list[list[str]] | None
    lines: list[list[int]]
    documents: list[int]
    columns: Columns

    def __len__(self) -> int:
        return len(self.words)

    def describe(self) -> str:
        """What a person wants to see before training on it."""
        documents = len(set(self.documents))
        said = f"{len(self):,} sentences, {sum(map(len, self.words)):,} words"
        return said + (f", {documents:,} documents" if documents > 1 else "")


class _Sentence:
    """A sentence while it is read."""

    def __init__(self, document: int):
        self.document, self.lines, self.words, self.labels = document, [], [], []

    def add(self, line: int, word: str, label: str | None) -> None:
        self.lines.append(line)
        self.words.append(word)
        self.labels.append(label)


def read(
    path: str | os.PathLike, columns: Columns | None = None, *, labelled: bool = True
) -> Sentences:
    """Reads one file: .jsonl, .conllu, or with any other ending columns.

    Args:
      path: of the file.
      columns: which hold word and label.
      labelled: whether each word must have a label; else a file may have none at all.

    Raises:
      ValueError: with all problems of the file, up to `tables.LISTED`.
    """
    path, columns, problems = os.fspath(path), columns or Columns(), Problems(path)
    reader = {".jsonl": _objects, ".json": _objects}.get(Path(path).suffix, _rows)
    columns, found = reader(path, decoded(path), columns, labelled, problems)
    found = [sentence for sentence in found if sentence.words]
    has_labels = columns.label is not None
    for sentence in found:
        for line, word, label in zip(
            sentence.lines, sentence.words, sentence.labels, strict=True
        ):
            if not word:
                problems.add(line, "word", word, "is empty; fill it in")
            if has_labels and not label:
                problems.add(
                    line, f"label of {word!r:.30},", "", "is empty; fill it in"
                )
    problems.raise_any()
    if not found:
        raise ValueError(f"{path} holds no word; it needs a word and a label a line")
    return Sentences(
        path,
        [sentence.words for sentence in found],
        [sentence.labels for sentence in found] if has_labels else None,
        [sentence.lines for sentence in found],
        [sentence.document for sentence in found],
        columns,
    )


def _rows(path, text, columns, labelled, problems):
    """Sentences of columns."""
    lines = list(_cells(text, is_conllu=path.endswith(".conllu")))
    widths = [len(cells) for _, cells in lines if _is_word(cells)]
    if not widths:
        return columns, []
    width = statistics.mode(widths)
    names = CONLLU if path.endswith(".conllu") else []
    columns = dataclasses.replace(
        columns,
        token=_place(
            path, "word", columns.token, names, width, usual=1 if names else 0
        ),
        label=_label_place(path, columns.label, names, width, labelled),
    )
    if max(columns.token, columns.label or 0) >= width:
        raise ValueError(
            f"{path} has rows of {width} columns, too few for the word's and its "
            "label's; mend it or name its columns"
        )
    found = [_Sentence(0)]
    for line, cells in lines:
        if not _is_word(cells):
            found.append(_Sentence(found[-1].document + (cells == [DOCUMENT])))
        elif len(cells) != width:
            remedy = f"cells: {len(cells)}, columns: {width}; mend its blanks"
            problems.add(line, "row", " ".join(cells), remedy)
        else:
            label = None if columns.label is None else cells[columns.label]
            found[-1].add(line, cells[columns.token], label)
    return columns, found


def _is_word(cells):
    return cells not in ([], [DOCUMENT])


def _cells(text, is_conllu) -> Iterator[tuple[int, list[str]]]:
    """Lines and their cells: [] between sentences, [DOCUMENT] between documents."""
    lines = [line.strip("\r ") for line in text.split("\n")]
    is_tabbed = any("\t" in line.strip("\t ") for line in lines)
    for number, line in enumerate(lines, 1):
        if is_conllu and line.startswith("#"):
            if line.removeprefix("#").strip().startswith("newdoc"):
                yield number, [DOCUMENT]
            continue
        if not line.strip("\t "):
            yield number, []
            continue
        cells = line.split("\t") if is_tabbed else _BLANKS.split(line.strip("\t"))
        cells = [cell.strip(" ") for cell in cells]
        # Words that are several, or that nobody wrote, are numbered 3-4 or 3.1.
        if is_conllu and not cells[0].isdigit():
            continue
        yield number, [DOCUMENT] if cells[0] == DOCUMENT else cells


def _label_place(path, asked, names, width, labelled):
    """The label's column, None for a file without."""
    if not labelled and (
        width == 1 or asked is not None and int_of(asked, -1) >= width
    ):
        return None
    if width == 1:
        raise ValueError(
            f"{path} has one column only; it needs a word and its label a line"
        )
    usual = names.index("upos") if names else width - 1
    return _place(path, "label", asked, names, width, usual)


def _place(path, role, asked, names, width, usual):
    if asked is None:
        return usual
    if str(asked).lower() in names:
        return names.index(str(asked).lower())
    place = int_of(asked, width)
    if -width <= place < width:
        return place % width
    known = ", ".join(names) or f"columns 0 to {width - 1}"
    raise ValueError(
        f"{path}: there is no column {asked!r} for the {role}; it has {known}"
    )


def int_of(value: str | int, otherwise: int) -> int:
    """A number as it may come from a flag."""
    try:
        return int(value)
    except ValueError:
        return otherwise


def _objects(path, text, columns, labelled, problems):
    """Sentences of JSON objects, one a line."""
    rows = list(_json_lines(text, problems))
    problems.raise_any()
    names = list(dict.fromkeys(name for _, row in rows for name in row))
    token = _key(path, "words", columns.token, TOKENS, names)
    label, possible = None, (columns.label,) if columns.label else LABELS
    if labelled or any(name in names for name in possible):
        label = _key(path, "labels", columns.label, LABELS, names)
    columns = dataclasses.replace(columns, token=token, label=label)
    found = [_Sentence(0)]
    for line, row in rows:
        sentence = _Sentence(found[-1].document)
        found.append(sentence)
        words, labels = row.get(token), row.get(label) if label else None
        if words == [DOCUMENT]:
            sentence.document += 1
        elif not isinstance(words, list) or not all(isinstance(x, str) for x in words):
            problems.add(line, token, json.dumps(words), "is no list of words")
        elif label and (not isinstance(labels, list) or len(labels) != len(words)):
            remedy = f"give a list with a label for each of the {len(words)} words"
            problems.add(line, label, json.dumps(labels), remedy)
        else:
            for word, value in zip(words, labels or [None] * len(words), strict=True):
                sentence.add(line, word, _name(value, columns.names))
    return columns, found


def _name(label, names):
    """A label as a name, from its number where the numbers have names."""
    if isinstance(label, int) and 0 <= label < len(names):
        return names[label]
    return label if label is None else str(label)


def _json_lines(text, problems):
    for line, row in enumerate(text.split("\n"), 1):
        try:
            value = json.loads(row) if row.strip() else {}
        except ValueError as error:
            problems.add(line, "row", row, f"is not JSON ({error}); mend it")
            continue
        if not isinstance(value, dict):
            problems.add(line, "row", row, "is no JSON object; write one a line")
        elif value:
            yield line, value


def _key(path, role, asked, known, names):
    found = [name for name in ((asked,) if asked else known) if name in names]
    if found:
        return found[0]
    raise ValueError(
        f"{path}: there is no {asked or ' or '.join(known)} for the {role}; it has "
        f"{', '.join(names) or 'nothing'}"
    )


def overlap(one: Sentences, other: Sentences) -> int:
    """How many sentences of `other` stand in `one`."""
    seen = set(map(tuple, one.words))
    return sum(tuple(words) in seen for words in other.words)


def label_ids(sentences: Sentences, labels: Sequence[str]) -> np.ndarray:
    """The labels of all words as places in `labels`, `[W]`.

    Raises:
      ValueError: with each label that is not among them.
    """
    problems, place = Problems(sentences.path), {x: i for i, x in enumerate(labels)}
    known = ", ".join(labels) if len(labels) <= 10 else f"the {len(labels)} labels"
    for lines, names in zip(sentences.lines, sentences.labels, strict=True):
        for line, name in zip(lines, names, strict=True):
            if name not in place:
                problems.add(line, "label", name, f"is none of {known}; mend it")
    problems.raise_any()
    return np.array([place[x] for names in sentences.labels for x in names], np.int32)
