"""What a frozen model knows of each word: labels by a logistic regression.

The feature-based approach of the BERT paper (Devlin et al., 2018, section 5.3), with a
linear classifier in place of its BiLSTM.
"""

import dataclasses
from typing import ClassVar

import numpy as np

from bert_jax import metrics
from bert_jax.data import conll
from bert_jax.data.conll import Sentences
from bert_jax.data.ragged import RaggedRows
from bert_jax.inference import Model
from bert_jax.tasks.fine_tuning import INPUTS
from bert_jax.tasks.tagging import rows_of
from examples.probes.text_probe import Probe


@dataclasses.dataclass
class WordProbe(Probe):
    """Labels of words, each by the vector of its first piece.

    Each word is labelled by itself: neither words beside it nor their labels have a say
    but through the model.

    Attributes:
      token, label: columns, by name or position from 0; None takes the first and the
        last.
      max_length: of a row in tokens; a sentence that is longer is cut between words.
      batch_size: rows computed together.

    >>> WordProbe(init_from="start", train="train.conll").check()
    Traceback (most recent call last):
    ValueError: dev is not given; name it with --config.dev
    """

    token: str | None = None
    label: str | None = None
    max_length: int = 128
    batch_size: int = 32

    poolings: ClassVar[tuple[str, ...]] = ("first",)

    def read(self, file: str) -> Sentences:
        """Sentences with labels."""
        return conll.read(file, conll.Columns(self.token, self.label))

    def states(self, model: Model, data: Sentences, pooling: str) -> np.ndarray:
        """Vectors of words."""
        if model.tokenizer is None:
            raise ValueError(f"{self.init_from} has no tokenizer; add its files")
        alone = range(len(data))
        length = min(self.max_length, model.max_length)
        rows = rows_of(data, alone, model.tokenizer, (), length)
        return states_at(model, rows, rows.row, rows.position, self.batch_size)

    def labels(self, data: Sentences) -> list[str]:
        """Those of all sentences."""
        return [label for labels in data.labels for label in labels]

    def score(self, data: Sentences, predictions: np.ndarray) -> dict[str, float]:
        """F1 of whole entities; accuracy where the labels are none."""
        if not metrics.are_entities(self.labels(data)):
            return {"accuracy": metrics.accuracy(self.labels(data), predictions)}
        words = iter(predictions.tolist())
        said = [[next(words) for _ in labels] for labels in data.labels]
        return {"f1": metrics.score(data.labels, said).f1}


def states_at(
    model: Model,
    rows: RaggedRows,
    row: np.ndarray,
    position: np.ndarray,
    batch_size: int,
) -> np.ndarray:
    """What every layer makes of single tokens, float32 `[W, layers + 1, D]`.

    Args:
      model: whose encoder it is.
      rows: rows of tokens.
      row, position: where each of the W tokens stands, `[W]`.
      batch_size: rows computed together; those of like length are.
    """
    depth = len(model.config.layer_order) + 1
    found = np.empty((len(row), depth, model.config.hidden_size), np.float32)
    order = np.argsort(rows.lengths, kind="stable")
    for start in range(0, len(order), batch_size):
        batch = order[start : start + batch_size]
        # A batch that is not full repeats its rows, so that it needs no new program.
        inputs = rows.gather(np.resize(batch, batch_size))
        inputs = {name: inputs[name] for name in INPUTS}
        states = np.moveaxis(np.asarray(model.hidden_states(**inputs)), 0, 2)
        place = np.full(len(order), -1)
        place[batch] = np.arange(len(batch))
        words = np.flatnonzero(place[row] >= 0)
        found[words] = states[place[row[words]], position[words]]
    return found
