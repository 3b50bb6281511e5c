"""Detects the task that a labelled file is for, by its names and its first rows."""

import itertools
from collections.abc import Mapping, Sequence

from bert_jax.data import choices, conll
from bert_jax.data.decoding import ending, lines
from bert_jax.data.labelled_files import OBJECTS, Problems, read_objects
from bert_jax.data.tables import plain

# Rows that tell words with labels from texts with labels.
SAMPLED = 400


def task_of(path: str) -> str:
    """The task of a labelled file: "classify", "answer", "tag" or "choose".

    Raises:
      ValueError: for a file that cannot be read.
    """
    if ending(path) in conll.ENDINGS:
        return "tag"
    if ending(path) in OBJECTS:
        return _task_of_objects(path)
    sample = [line for _, line in itertools.islice(lines(path), SAMPLED)]
    if has_words(sample):
        return "tag"
    separators = [x for x in "\t;," if x in (sample or [""])[0]]
    names = sample[0].split(separators[0]) if separators else []
    return _task_of_fields(dict.fromkeys(names))


def has_words(sample: Sequence[str]) -> bool:
    """True for lines of columns: a word first, and empty lines between sentences."""
    rows = [line.split("\t") if "\t" in line else line.split() for line in sample]
    inside = [row for row in rows if row]
    if not all(len(row) > 1 and " " not in row[0] for row in inside):
        return False
    gaps = sum(line == "" for line in sample[1:-1])
    return gaps > 0 and len({len(row) for row in inside}) == 1


def _task_of_objects(path: str) -> str:
    problems = Problems(path)
    first = next((row for _, row in read_objects(path, problems)), {})
    if isinstance(first.get("data"), list):  # SQuAD's articles
        return "answer"
    return _task_of_fields(first)


def _task_of_fields(fields: Mapping[str, object]) -> str:
    """The task of a row by the names of its columns, and its values if they are known.

    >>> _task_of_fields({"question": "Who?", "context": "Ada.", "answers": []})
    'answer'
    """
    values = {plain(name): value for name, value in fields.items()}
    lists = [x for x in choices.LISTS if _are_texts(values.get(x))]
    label = [x for x in choices.KNOWN_NAMES["label"] if x in values]
    if label and (lists or choices.numbered_columns(list(fields))):
        return "choose"
    if any(_are_texts(values.get(name)) for name in conll.TOKENS):
        return "tag"
    is_answer = {"question", "context"} <= values.keys() and not (
        isinstance(values.get("label"), str | int)
    )
    return "answer" if is_answer else "classify"


def _are_texts(value: object) -> bool:
    if isinstance(value, list):
        return bool(value) and all(isinstance(x, str) for x in value)
    return False
