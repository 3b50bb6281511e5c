"""What labelled files hold, and what is wrong with them, for each kind of task."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from bert_jax.data import choices, conll, labelled_files, squad, tables
from bert_jax.data.tables import Columns, is_number

# What a file is for by its ending; other endings are of single texts and pairs.
BY_ENDING = {".json": "answer", ".conll": "tag", ".conllu": "tag", ".bio": "tag"}


def described(
    files: Sequence[str], task: str | None = None, columns: Columns | None = None
) -> Iterator[str]:
    """A line for each file, the first of which is to train on.

    Args:
      files: of one kind.
      task: "classify", "answer", "tag" or "choose"; None goes by the ending.
      columns: of a table, where they are not found.

    Raises:
      ValueError: with all problems of a file.
    """
    files = [labelled_files.local(file) for file in files]
    task = task or BY_ENDING.get(Path(files[0]).suffix.lower(), "classify")
    return TASKS[task](files, columns or Columns())


def _classify(files, columns):
    train = tables.read(files[0], columns)
    labels = class_names(train)
    yield f"{train.path}: {train.describe(labels)}"
    for file in files[1:]:
        table = tables.read(file, train.columns)
        tables.classes(table, labels) if labels else tables.numbers(table)
        yield f"{file}: {table.describe(labels)}{_same(tables, train, table)}"


def class_names(train: tables.Table, regression: bool | None = None) -> tuple[str, ...]:
    """Names of the classes by number; none for regression.

    That is where labels are numbers and not all whole, if it is not said.
    """
    found = sorted(set(train.labels), key=_by_number)
    whole = all(label.lstrip("+-").isdigit() for label in found)
    if regression is None:
        regression = all(map(is_number, found)) and not whole
    return () if regression else tuple(found)


def _by_number(label):
    return (float(label), label) if is_number(label) else (float("inf"), label)


def _tag(files, _):
    train = conll.read(files[0])
    names = Counter(label for row in train.labels for label in row)
    for file in files:
        sentences = conll.read(file, train.columns) if file != files[0] else train
        conll.label_ids(sentences, tuple(names))
        yield f"{file}: {sentences.describe()}{_same(conll, train, sentences)}"
    said = ", ".join(f"{name} {count:,}" for name, count in names.most_common(20))
    yield f"{len(names)} labels in {files[0]}: {said}"


def _answer(files, _):
    train = squad.read(files[0])
    for file in files:
        found = squad.read(file) if file != files[0] else train
        without = sum(question.answers == () for question in found)
        said = f"{len(found):,} questions, {without:,} without an answer"
        yield f"{file}: {said}{_same(squad, train, found, files[0])}"


def _choose(files, _):
    train = choices.read(files[0])
    for file in files:
        found = choices.read(file, train.columns) if file != files[0] else train
        most = max(map(len, found.choices))
        said = f"{len(found):,} rows of up to {most} choices"
        yield f"{file}: {said}{_same(choices, train, found)}"


def _same(reader, train, other, path=None):
    """How much of another file stands in the one to train on."""
    count = 0 if other is train else reader.overlap(train, other)
    return f"; {count} of them stand in {path or train.path} too" if count else ""


TASKS = {"classify": _classify, "answer": _answer, "tag": _tag, "choose": _choose}
