"""Sentences with a label for each word, from CoNLL, CoNLL-U, JSON and Parquet files.

CoNLL files have a word a line, in columns, and an empty line behind each sentence; a
line -DOCSTART- begins a document (Tjong Kim Sang & De Meulder, 2003).
"""

import dataclasses
import json
import os
import re
import statistics
from collections.abc import Iterator, Sequence

import numpy as np

from bert_jax.data.decoding import ending, read_text
from bert_jax.data.labelled_files import OBJECTS, Problems, read_objects
from bert_jax.files import counted

DOCUMENT = "-DOCSTART-"

# Endings of files of columns.
ENDINGS = (".conll", ".conllu", ".bio", ".iob")

# A longer sentence is a file without empty lines.
MAX_WORDS = 1000

# The columns of Universal Dependencies.
CONLLU = "id form lemma upos xpos feats head deprel deps misc".split()

# Common names of the lists of words and of labels in JSONL, the likeliest first.
TOKENS = ("tokens", "words")
LABELS = ("tags", "ner_tags", "labels", "ner", "pos_tags", "upos")

# ASCII blanks separate cells; other blanks of Unicode may be words.
_BLANKS = re.compile("[ \t]+")


@dataclasses.dataclass(frozen=True)
class Columns:
    """The columns of words and labels: a name, or a position from 0 (or from the end).

    None takes the first and the last column, or those with common names. `names` are
    the names of labels that JSONL gives as numbers.
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
      columns: where they were, to read another file of the same kind alike.
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
        """Numbers of sentences, words and documents in one line."""
        documents = len(set(self.documents))
        words = counted(sum(map(len, self.words)), "word")
        text = f"{counted(len(self), 'sentence')}, {words}"
        return text + (f", {documents:,} documents" if documents > 1 else "")


def read(
    path: str | os.PathLike, columns: Columns | None = None, *, labelled: bool = True
) -> Sentences:
    """Reads one file: .jsonl, .json, .parquet, .conllu, or columns under other endings.

    Args:
      path: of the file.
      columns: the ones of words and labels.
      labelled: True if each word must have a label; else a file may have none at all.

    Raises:
      ValueError: with all problems of the file, up to `labelled_files.MAX_LISTED`.
    """
    path, columns = os.fspath(path), columns or Columns()
    problems = Problems(path)
    read_format = _read_objects if ending(path) in OBJECTS else _read_columns
    columns, drafts = read_format(path, columns, labelled, problems)
    drafts = [draft for draft in drafts if draft.words]
    has_labels = columns.label is not None
    for draft in drafts:
        draft.check(problems, has_labels)
    problems.raise_any()
    if not drafts:
        raise ValueError(f"{path} holds no word; it needs a word and a label a line")
    return Sentences(
        path,
        [draft.words for draft in drafts],
        [[x or "" for x in draft.labels] for draft in drafts] if has_labels else None,
        [draft.lines for draft in drafts],
        [draft.document for draft in drafts],
        columns,
    )


def overlap(one: Sentences, other: Sentences) -> int:
    """The number of sentences of `other` that are in `one`."""
    seen = set(map(tuple, one.words))
    return sum(tuple(words) in seen for words in other.words)


def label_ids(sentences: Sentences, labels: Sequence[str]) -> np.ndarray:
    """The labels of all words as indices into `labels`, `[W]`.

    Raises:
      ValueError: with each label that is not among them.
    """
    problems, index = Problems(sentences.path), {x: i for i, x in enumerate(labels)}
    known = ", ".join(labels) if len(labels) <= 10 else f"the {len(labels)} labels"
    rows = sentences.labels or []
    for lines, names in zip(sentences.lines, rows, strict=True):
        for line, name in zip(lines, names, strict=True):
            if name not in index:
                problems.add(line, "label", name, f"is not one of {known}; fix it")
    problems.raise_any()
    return np.array([index[name] for names in rows for name in names], np.int32)


class _Draft:
    """A sentence while it is read."""

    def __init__(self, document: int):
        self.document = document
        self.lines: list[int] = []
        self.words: list[str] = []
        self.labels: list[str | None] = []

    def add(self, line: int, word: str, label: str | None) -> None:
        self.lines.append(line)
        self.words.append(word)
        self.labels.append(label)

    def check(self, problems: Problems, has_labels: bool) -> None:
        """Adds the words and labels that are empty to `problems`."""
        rows = zip(self.lines, self.words, self.labels, strict=True)
        for line, word, label in rows:
            if not word:
                problems.add(line, "word", word, "is empty; fill it in")
            if has_labels and not label:
                column = f"label of {word!r:.30},"
                problems.add(line, column, "", "is empty; fill it in")


def _read_columns(
    path: str, columns: Columns, labelled: bool, problems: Problems
) -> tuple[Columns, list[_Draft]]:
    """Sentences of a word a line."""
    is_conllu = ending(path) == ".conllu"
    lines = list(_cells(read_text(path), is_conllu))
    widths = [len(cells) for _, cells in lines if _is_word(cells)]
    if not widths:
        return columns, []
    width = statistics.mode(widths)
    names = CONLLU if is_conllu else []
    usual = 1 if names else 0
    token = _position(path, "word", columns.token, names, width, usual)
    label = _label_position(path, columns.label, names, width, labelled)
    columns = dataclasses.replace(columns, token=token, label=label)
    if max(token, label or 0) >= width:
        raise ValueError(
            f"{path} has rows of {width} columns, too few for the word's and its "
            "label's; fix it or name its columns"
        )
    drafts = [_Draft(0)]
    for line, cells in lines:
        if not _is_word(cells):
            drafts.append(_Draft(drafts[-1].document + (cells == [DOCUMENT])))
        elif len(cells) != width:
            remedy = f"cells: {len(cells)}, columns: {width}; fix its blanks"
            problems.add(line, "row", " ".join(cells), remedy)
        else:
            drafts[-1].add(line, cells[token], None if label is None else cells[label])
    _check_words(path, drafts)
    return columns, drafts


def _check_words(path: str, drafts: Sequence[_Draft]) -> None:
    """Raises ValueError for rows of texts, and for words without ends of sentences."""
    words = [word for draft in drafts for word in draft.words]
    texts = [word for word in words if " " in word]
    if 2 * len(texts) > len(words):
        text = texts[0] if len(texts[0]) <= 40 else f"{texts[0][:39]}…"
        raise ValueError(
            f"{path} has a text in each row, as {text!r}, and no word; train the task "
            "classify, or write a word a line"
        )
    longest = max(drafts, key=lambda draft: len(draft.words))
    count = len(longest.words)
    if count > MAX_WORDS:
        raise ValueError(
            f"{path}:{longest.lines[0]}: this sentence has {count:,} words; put an "
            "empty line behind each sentence"
        )


def _is_word(cells: list[str]) -> bool:
    return cells not in ([], [DOCUMENT])


def _cells(text: str, is_conllu: bool) -> Iterator[tuple[int, list[str]]]:
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
        # Numbers such as 3-4 or 3.1 mark several words at once, or a word left out.
        if is_conllu and not cells[0].isdigit():
            continue
        yield number, [DOCUMENT] if cells[0] == DOCUMENT else cells


def _label_position(
    path: str,
    column: str | int | None,
    names: Sequence[str],
    width: int,
    labelled: bool,
) -> int | None:
    """The label's column; None for a file without labels."""
    is_beyond = column is not None and _as_int(column, -1) >= width
    if not labelled and (width == 1 or is_beyond):
        return None
    if width == 1:
        raise ValueError(
            f"{path} has one column only; it needs a word and its label a line"
        )
    usual = names.index("upos") if names else width - 1
    return _position(path, "label", column, names, width, usual)


def _position(
    path: str,
    role: str,
    column: str | int | None,
    names: Sequence[str],
    width: int,
    usual: int,
) -> int:
    if column is None:
        return usual
    if str(column).lower() in names:
        return names.index(str(column).lower())
    position = _as_int(column, width)
    if -width <= position < width:
        return position % width
    known = ", ".join(names) or f"columns 0 to {width - 1}"
    raise ValueError(
        f"{path}: there is no column {column!r} for the {role}; it has {known}"
    )


def _as_int(value: str | int, default: int) -> int:
    """A number, which is a string where it comes from a flag."""
    try:
        return int(value)
    except ValueError:
        return default


def _read_objects(
    path: str, columns: Columns, labelled: bool, problems: Problems
) -> tuple[Columns, list[_Draft]]:
    """Sentences of JSON objects, one a line."""
    rows = [(line, row) for line, row in read_objects(path, problems) if row]
    problems.raise_any()
    names = list(dict.fromkeys(name for _, row in rows for name in row))
    token = _key(path, "words", columns.token, TOKENS, names)
    label, possible = None, (columns.label,) if columns.label else LABELS
    if labelled or any(name in names for name in possible):
        label = _key(path, "labels", columns.label, LABELS, names)
    drafts = [_Draft(0)]
    for line, row in rows:
        draft = _Draft(drafts[-1].document)
        drafts.append(draft)
        words, labels = row.get(token), row.get(label) if label else None
        if words == [DOCUMENT]:
            draft.document += 1
        elif not isinstance(words, list) or not all(isinstance(x, str) for x in words):
            problems.add(line, token, json.dumps(words), "is not a list of words")
        elif label and (not isinstance(labels, list) or len(labels) != len(words)):
            remedy = (
                f"give a list with a label for each of {counted(len(words), 'word')}"
            )
            problems.add(line, label, json.dumps(labels), remedy)
        else:
            for word, value in zip(words, labels or [None] * len(words), strict=True):
                draft.add(line, word, _label_name(value, columns.names))
    return dataclasses.replace(columns, token=token, label=label), drafts


def _label_name(label: object, names: Sequence[str]) -> str | None:
    """A label as a name, from its number where the numbers have names."""
    if isinstance(label, int) and 0 <= label < len(names):
        return names[label]
    return None if label is None else str(label)


def _key(
    path: str,
    role: str,
    column: str | int | None,
    known: Sequence[str],
    names: Sequence[str],
) -> str:
    for name in (str(column),) if column else known:
        if name in names:
            return name
    raise ValueError(
        f"{path}: there is no {column or ' or '.join(known)} for the {role}; it has "
        f"{', '.join(names) or 'nothing'}"
    )
