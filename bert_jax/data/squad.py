"""Questions on texts, from SQuAD's JSON or rows of JSONL."""

import dataclasses
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from bert_jax.data.decoding import ending, read_text
from bert_jax.data.labelled_files import ARRAY, OBJECTS, Problems, read_objects

FIELDS = ("id", "question", "context")


class Answer(NamedTuple):
    """An answer as marked in a context, and the character it starts at."""

    text: str
    start: int


@dataclasses.dataclass(frozen=True)
class Question:
    """One question about one context.

    `answers` is empty where there is none in the context, as in SQuAD 2.0, and None
    where it is not known.
    """

    id: str
    question: str
    context: str
    answers: tuple[Answer, ...] | None


def read(path: str | os.PathLike, labelled: bool = True) -> list[Question]:
    """Reads SQuAD 1.1 or 2.0 (.json), or rows of JSONL, a JSON array or Parquet.

    A row has `id`, `question`, `context` and `answers`: `{"text": [...],
    "answer_start": [...]}`, or SQuAD's list of `{"text", "answer_start"}`.

    Args:
      path: the file.
      labelled: True if a question without the key `answers` is a problem.

    Raises:
      ValueError: with all problems of the file, up to `labelled_files.MAX_LISTED`.
    """
    path = os.fspath(path)
    problems = Problems(path)
    if ending(path) not in OBJECTS:
        read_text(path)  # raises for a file that is not text
        raise ValueError(
            f"{path} ends in {ending(path)!r}; give SQuAD's .json, or a .jsonl file"
        )
    rows: Iterable[tuple[int | str, dict]]
    if ending(path) == ".json" and not ARRAY.match(text := read_text(path)):
        rows = _nested_rows(text, problems)
    else:
        rows = read_objects(path, problems)
    questions: list[Question] = []
    places: dict[str, int | str] = {}
    for place, row in rows:
        question = _question(place, row, labelled, problems)
        if question and question.id in places:
            remedy = f"{places[question.id]} has it too; give each question its own"
            problems.add(place, "id", question.id, remedy)
        elif question:
            places[question.id] = place
            questions.append(question)
    problems.raise_any()
    if not questions:
        raise ValueError(f"{path} holds no question; add some")
    return questions


def has_unanswerable(questions: Sequence[Question]) -> bool:
    """True if there are questions without an answer, as in SQuAD 2.0."""
    return any(question.answers == () for question in questions)


def overlap(one: Sequence[Question], other: Sequence[Question]) -> int:
    """The number of questions of `other` that are in `one`, on the same context."""
    seen = {(x.question, x.context) for x in one}
    return sum((x.question, x.context) in seen for x in other)


def _nested_rows(text: str, problems: Problems) -> Iterator[tuple[str, dict]]:
    """Rows from SQuAD's articles, paragraphs and questions, each after its place."""
    try:
        whole = json.loads(text)
    except json.JSONDecodeError as error:
        remedy = f"is not JSON ({error.msg}); fix it, or name rows of JSON .jsonl"
        shown = text[error.pos : error.pos + 20]
        problems.add(error.lineno, f"column {error.colno},", shown, remedy)
        return
    for place, article in _children("", whole, "data", problems):
        for inner, paragraph in _children(place, article, "paragraphs", problems):
            for last, row in _children(inner, paragraph, "qas", problems):
                yield last, {"context": paragraph.get("context"), **row}


def _children(
    place: str, value: object, name: str, problems: Problems
) -> Iterator[tuple[str, dict]]:
    """The objects in the list `value[name]`, each after its place."""
    children = value.get(name) if isinstance(value, dict) else None
    prefix = f"{place}.{name}" if place else name
    if not isinstance(children, list):
        remedy = (
            "is not a list of objects; SQuAD has data, paragraphs in it, qas in these"
        )
        problems.add(place or 1, name, _shown(children), remedy)
        return
    for i, child in enumerate(children):
        if isinstance(child, dict):
            yield f"{prefix}[{i}]", child
        else:
            problems.add(
                f"{prefix}[{i}]", name, _shown(child), "is not an object; fix it"
            )


def _question(
    place: int | str, row: Mapping[str, Any], labelled: bool, problems: Problems
) -> Question | None:
    """One question; None if it has problems."""
    values = {name: row.get(name) for name in FIELDS}
    if isinstance(values["id"], int):
        values["id"] = str(values["id"])
    missing = [
        name
        for name, value in values.items()
        if not (isinstance(value, str) and value.strip())
    ]
    for name in missing:
        problems.add(place, name, _shown(values[name]), f"needs a {name}; write it")
    if missing:
        return None
    texts = {name: str(value) for name, value in values.items()}
    return Question(**texts, answers=_answers(place, row, labelled, problems))


def _answers(
    place: int | str, row: Mapping[str, Any], labelled: bool, problems: Problems
) -> tuple[Answer, ...] | None:
    """The answers of a row; None where they are not known, or not readable."""
    entry, is_impossible = row.get("answers"), row.get("is_impossible") is True
    if entry is None and is_impossible:
        entry = []
    if entry is None:
        if labelled:
            remedy = "needs answers; write [] where there is none in the context"
            problems.add(place, "answers", _shown(entry), remedy)
        return None
    entries: Any = _paired(entry) if isinstance(entry, dict) else entry
    if not isinstance(entries, list) or not all(isinstance(x, dict) for x in entries):
        remedy = 'is not {"text": [...], "answer_start": [...]} of one length; fix it'
        problems.add(place, "answers", _shown(row["answers"]), remedy)
        return None
    if entries and is_impossible:
        remedy = "contradicts is_impossible is true; remove one of them"
        problems.add(place, "answers", _shown(entries), remedy)
    answers = [Answer(x.get("text"), x.get("answer_start")) for x in entries]
    for answer in answers:
        remedy = _problem(answer, row["context"])
        if remedy:
            problems.add(place, "answer", _shown(answer.text), remedy)
    return tuple(answers)


def _paired(columns: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """Answers as objects, from a list of texts and a list of starts."""
    texts, starts = columns.get("text"), columns.get("answer_start")
    if not isinstance(texts, list) or not isinstance(starts, list):
        return None
    if len(texts) != len(starts):
        return None
    pairs = zip(texts, starts, strict=True)
    return [{"text": text, "answer_start": start} for text, start in pairs]


def _problem(answer: Answer, context: str) -> str:
    """The problem of an answer and its remedy; "" for none."""
    text, start = answer
    if not isinstance(text, str) or not text.strip():
        return "has no text; write it, or give no answers at all"
    if isinstance(start, int) and not isinstance(start, bool) and start >= 0:
        if context.startswith(text, start):
            return ""
    actual = context.find(text)
    if actual < 0:
        return "is not in the context; copy it from there"
    return f"is not at answer_start={_shown(start)} of the context but at {actual}"


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
