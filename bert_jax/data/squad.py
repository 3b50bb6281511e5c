"""Questions about texts: SQuAD's JSON, JSONL rows, and all that is wrong in a file."""

import dataclasses
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bert_jax.data.tables import Problems, decoded, objects

FIELDS = ("id", "question", "context")


class Answer(NamedTuple):
    """What people marked in a context, and the character it starts at."""

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
    """Reads SQuAD 1.1 or 2.0 (.json), or rows of JSONL.

    A row has `id`, `question`, `context` and `answers`: `{"text": [...],
    "answer_start": [...]}`, or SQuAD's list of `{"text", "answer_start"}`.

    Args:
      path: the file.
      labelled: whether a question without the key `answers` is a problem.

    Raises:
      ValueError: with all problems of the file, up to `tables.LISTED`.
    """
    path = os.fspath(path)
    text, problems, ending = decoded(path), Problems(path), Path(path).suffix.lower()
    if ending not in (".json", ".jsonl"):
        raise ValueError(
            f"{path} ends in {ending!r}; give SQuAD's .json, or a .jsonl file"
        )
    rows = objects(text, problems) if ending == ".jsonl" else _nested(text, problems)
    found, places = [], {}
    for place, row in rows:
        question = _question(place, row, labelled, problems)
        if question and question.id in places:
            remedy = f"{places[question.id]} has it too; give each question its own"
            problems.add(place, "id", question.id, remedy)
        elif question:
            places[question.id] = place
            found.append(question)
    problems.raise_any()
    if not found:
        raise ValueError(f"{path} holds no question; add some")
    return found


def has_unanswerable(questions: Sequence[Question]) -> bool:
    """Whether there are questions without an answer, as in SQuAD 2.0."""
    return any(question.answers == () for question in questions)


def overlap(one: Sequence[Question], other: Sequence[Question]) -> int:
    """How many questions of `other` stand in `one`, on the same context."""
    seen = {(x.question, x.context) for x in one}
    return sum((x.question, x.context) in seen for x in other)


def _nested(text: str, problems: Problems) -> Iterator[tuple[str, dict]]:
    """Rows from SQuAD's articles, paragraphs and questions, each after its place."""
    try:
        whole = json.loads(text)
    except json.JSONDecodeError as error:
        remedy = f"is not JSON ({error.msg}); mend it, or name rows of JSON .jsonl"
        shown = text[error.pos : error.pos + 20]
        problems.add(error.lineno, f"column {error.colno},", shown, remedy)
        return
    for place, article in _children("", whole, "data", problems):
        for inner, paragraph in _children(place, article, "paragraphs", problems):
            for last, row in _children(inner, paragraph, "qas", problems):
                yield last, {"context": paragraph.get("context"), **row}


def _children(place, value, name, problems):
    """Objects in the list that `value` has under `name`, and where they are."""
    children = value.get(name) if isinstance(value, dict) else None
    prefix = f"{place}.{name}" if place else name
    if not isinstance(children, list):
        remedy = "is no list of objects; SQuAD has data, paragraphs in it, qas in these"
        problems.add(place or 1, name, _shown(children), remedy)
        return
    for i, child in enumerate(children):
        if isinstance(child, dict):
            yield f"{prefix}[{i}]", child
        else:
            problems.add(f"{prefix}[{i}]", name, _shown(child), "is no object; mend it")


def _question(place, row: Mapping, labelled: bool, problems) -> Question | None:
    """One question; None after its problems are taken."""
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
    return Question(**values, answers=_answers(place, row, labelled, problems))


def _answers(place, row, labelled, problems):
    given = row.get("answers")
    if given is None and row.get("is_impossible") is True:
        given = []
    if given is None:
        if labelled:
            remedy = "needs answers; write [] where there is none in the context"
            problems.add(place, "answers", _shown(given), remedy)
        return None
    if isinstance(given, dict):
        given = _paired(given)
    if not isinstance(given, list) or not all(isinstance(x, dict) for x in given):
        remedy = 'is no {"text": [...], "answer_start": [...]} of one length; mend it'
        problems.add(place, "answers", _shown(row["answers"]), remedy)
        return None
    if given and row.get("is_impossible") is True:
        remedy = "stands where is_impossible is true; remove one of them"
        problems.add(place, "answers", _shown(given), remedy)
    answers = [Answer(x.get("text"), x.get("answer_start")) for x in given]
    for answer in answers:
        remedy = _fault(answer, row["context"])
        if remedy:
            problems.add(place, "answer", _shown(answer.text), remedy)
    return tuple(answers)


def _paired(given: Mapping) -> list | None:
    """SQuAD's form of answers whose texts and starts are lists of their own."""
    texts, starts = given.get("text"), given.get("answer_start")
    alike = isinstance(texts, list) and isinstance(starts, list)
    if not alike or len(texts) != len(starts):
        return None
    pairs = zip(texts, starts, strict=True)
    return [{"text": text, "answer_start": start} for text, start in pairs]


def _fault(answer: Answer, context: str) -> str | None:
    """What is wrong with an answer, and the remedy."""
    text, start = answer
    if not isinstance(text, str) or not text.strip():
        return "has no text; write it, or give no answers at all"
    if isinstance(start, int) and not isinstance(start, bool) and start >= 0:
        if context.startswith(text, start):
            return None
    at = context.find(text)
    if at < 0:
        return "is not in the context; copy it from there"
    return f"is not at answer_start={_shown(start)} of the context but at {at}"


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
