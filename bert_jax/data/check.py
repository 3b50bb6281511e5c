"""Describes labelled files, and raises the problems in them, for each kind of task."""

from collections import Counter
from collections.abc import Iterator, Sequence

from bert_jax.data import (
    choices,
    conll,
    detection,
    squad,
    tables,
    text_groups,
    tfds_files,
)
from bert_jax.data.tables import Columns
from bert_jax.files import counted


def describe_files(
    files: Sequence[str], task: str | None = None, columns: Columns | None = None
) -> Iterator[str]:
    """Yields a line for the task and for each file, the first of which is to train on.

    Args:
      files: of one kind.
      task: "classify", "answer", "tag", "choose", "embed" or "rerank"; None detects all
        but the last two.
      columns: of a table; None finds them.

    Raises:
      ValueError: with all problems of a file.
    """
    files = [tfds_files.local_file(file) for file in files]
    columns = columns or Columns()
    detected = "" if task or columns.named else " (detected; --task sets another)"
    task = task or ("classify" if columns.named else detection.task_of(files[0]))
    yield f"task: {task}{detected}"
    yield from TASKS[task](files, columns)


def _classify(files: Sequence[str], columns: Columns) -> Iterator[str]:
    train = tables.read(files[0], columns)
    labels = tables.class_names(train)
    yield f"{train.path}: {train.describe(labels)}"
    for file in files[1:]:
        table = tables.read(file, train.columns)
        tables.classes(table, labels) if labels else tables.numbers(table)
        shared = _shared(tables.overlap(train, table), files[0])
        yield f"{file}: {table.describe(labels)}{shared}"


def _tag(files: Sequence[str], _: Columns) -> Iterator[str]:
    train = conll.read(files[0])
    counts = Counter(label for row in train.labels or () for label in row)
    for file in files:
        sentences = conll.read(file, train.columns) if file != files[0] else train
        conll.label_ids(sentences, tuple(counts))
        shared = 0 if sentences is train else conll.overlap(train, sentences)
        yield f"{file}: {sentences.describe()}{_shared(shared, files[0])}"
    most = ", ".join(f"{count:,} of {name}" for name, count in counts.most_common(20))
    yield f"{counted(len(counts), 'label')} in {files[0]}: {most}"


def _answer(files: Sequence[str], _: Columns) -> Iterator[str]:
    train = squad.read(files[0])
    for file in files:
        questions = squad.read(file) if file != files[0] else train
        without = sum(question.answers == () for question in questions)
        shared = 0 if questions is train else squad.overlap(train, questions)
        yield (
            f"{file}: {counted(len(questions), 'question')}, "
            f"{without:,} without an answer{_shared(shared, files[0])}"
        )


def _choose(files: Sequence[str], _: Columns) -> Iterator[str]:
    train = choices.read(files[0])
    for file in files:
        questions = choices.read(file, train.columns) if file != files[0] else train
        most = max(map(len, questions.choices))
        shared = 0 if questions is train else choices.overlap(train, questions)
        yield (
            f"{file}: {counted(len(questions), 'row')} of up to {most} choices"
            f"{_shared(shared, files[0])}"
        )


def _groups(files: Sequence[str], _: Columns) -> Iterator[str]:
    train = text_groups.read(files[0])
    for file in files:
        groups = text_groups.read(file) if file != files[0] else train
        shared = 0 if groups is train else text_groups.overlap(train, groups)
        yield f"{file}: {groups.describe()}{_shared(shared, files[0])}"


def _shared(count: int, train: str) -> str:
    verb = "is" if count == 1 else "are"
    return f"; {count:,} of them {verb} in {train} too" if count else ""


TASKS = {
    "classify": _classify,
    "answer": _answer,
    "tag": _tag,
    "choose": _choose,
    "embed": _groups,
    "rerank": _groups,
}
