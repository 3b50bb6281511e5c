"""Fine-tuning to find the right one of several choices, as in SWAG."""

import dataclasses
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bert_jax.data import choices
from bert_jax.data.choice_columns import ChoiceColumns
from bert_jax.data.choices import Questions
from bert_jax.tasks.choices_run import Prepared, rows_of
from bert_jax.tasks.finetuned import FineTuning


@dataclasses.dataclass
class Choices(FineTuning):
    """Contexts with choices, one of which is right, as a config says it.

    Each choice is a pair: the context, and the choice behind what opens it (Devlin et
    al., 2018, section 4.4). Their scores go through one softmax.

    Attributes:
      train, dev: .csv, .tsv or .jsonl files with names of columns; `dev` is what is
        evaluated on.
      test: such files to predict; they need no labels.
      context: name of the column; None finds it.
      opening: of what opens every choice; "" for none.
      choices: a column for each choice, or one that holds lists.
      label: of the right choice: its number from 0 or 1, its letter, or its column.

    >>> import json
    >>> row = {"context": "we ate", "choices": ["bread .", "stones ."], "label": 0}
    >>> _ = Path("choices.jsonl").write_text(json.dumps(row))
    >>> Choices(train="choices.jsonl", dev="choices.jsonl").count()
    1
    """

    context: str | None = None
    opening: str | None = None
    choices: tuple[str, ...] = ()
    label: str | None = None

    def count(self) -> int:
        """Rows of `train`."""
        return len(self._read())

    def prepare(self, workdir: Path, encoder: Any, seed: int) -> Prepared:
        """All files read, checked and cut into tokens."""
        train, files = self._read(), self.splits()
        found = {"train": train, "eval": choices.read(self.dev, train.columns)}
        for split in list(files)[len(found) :]:
            found[split] = choices.read(files[split], train.columns, labelled=False)
        start, tokenizer = self.start(encoder)
        _say(found)
        dev = found["eval"]
        return Prepared(
            sources={
                split: rows_of(questions, tokenizer, self.max_length)
                for split, questions in found.items()
            },
            labels=(),
            metrics=("accuracy",),
            tokenizer=tokenizer,
            max_length=self.max_length,
            start=start,
            files=tuple(files.values()),
            lesson=self.lesson,
            columns=train.columns,
            first=((dev.contexts[0], dev.openings[0]), dev.choices[0]),
        )

    def _read(self) -> Questions:
        columns = ChoiceColumns(self.context, self.opening, self.choices, self.label)
        return choices.read(self.train, columns)


def _say(found: Mapping[str, Questions]) -> None:
    """What there is to learn from, and whether it is too easy to score."""
    train, dev = found["train"], found["eval"]
    same = choices.overlap(train, dev)
    if same:
        warnings.warn(
            f"{same} of the {len(dev)} rows of {dev.path} stand in {train.path} "
            "too, so scores on them are too good",
            stacklevel=3,
        )
    counts = sorted({len(row) for row in train.choices})
    said = " to ".join(map(str, counts[:1] + counts[1:][-1:]))
    print(f"{len(train):,} rows to train on, {len(dev):,} held out, {said} choices")
