"""GPT's fine-tuning: texts with marks as one row, and the loss of a language model.

Radford et al., 2018, sections 3.2 and 3.3: a text, or several, become rows of tokens
that start with one mark, have another between two texts and end with a third one, whose
vector is the input of one linear layer. The loss is that of the task, plus half of that
of the tokens.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from bert_jax.models import layers
from examples.gpt.language_modelling import cross_entropy

Ids = Sequence[int]


@dataclasses.dataclass(frozen=True)
class Marks:
    """The three tokens that fine-tuning adds behind a vocabulary.

    Attributes:
      vocab_size: of the vocabulary without them.
      max_length: of a row; of several texts, the longest is cut first.

    >>> marks = Marks(vocab_size=100, max_length=8)
    >>> classification(marks, [1, 2, 3])
    [[100, 1, 2, 3, 102]]
    >>> similarity(marks, [1, 2, 3, 4], [7, 8, 9])
    [[100, 1, 2, 3, 101, 7, 8, 102], [100, 7, 8, 101, 1, 2, 3, 102]]
    """

    vocab_size: int
    max_length: int

    count = 3

    def row(self, *texts: Ids) -> list[int]:
        """Texts behind each other, with all marks."""
        start, delimiter, extract = range(self.vocab_size, self.vocab_size + self.count)
        lengths = [len(text) for text in texts]
        while sum(lengths) > self.max_length - len(texts) - 1:
            longest = max(range(len(texts)), key=lengths.__getitem__)
            lengths[longest] -= 1
        row = [start]
        for text, length in zip(texts, lengths, strict=True):
            row += [*text[:length], delimiter]
        return [*row[:-1], extract]


def classification(marks: Marks, text: Ids) -> list[list[int]]:
    """One text: one row."""
    return [marks.row(text)]


def entailment(marks: Marks, premise: Ids, hypothesis: Ids) -> list[list[int]]:
    """Two texts in their order: one row."""
    return [marks.row(premise, hypothesis)]


def similarity(marks: Marks, text: Ids, other: Ids) -> list[list[int]]:
    """Two texts without an order: a row for each of both, whose vectors are summed."""
    return [marks.row(text, other), marks.row(other, text)]


def choices(marks: Marks, context: Ids, answers: Sequence[Ids]) -> list[list[int]]:
    """A text and possible answers: a row for each answer, scored by itself."""
    return [marks.row(context, answer) for answer in answers]


# The forms of labelled texts, by the number of texts that each has.
FORMS: Mapping[str, tuple[int, Callable[..., list[list[int]]]]] = {
    "classification": (1, classification),
    "entailment": (2, entailment),
    "similarity": (2, similarity),
}


class Outputs(NamedTuple):
    """Scores of the labels `[B, C]`, and of each next token `[B, S, L, V]`."""

    labels: jax.Array
    tokens: jax.Array


class TaskHead(nn.Module):
    """A linear layer on the last token of S rows: `[B, S, L] -> Outputs`.

    Attributes:
      encoder: a GPT.
      num_labels: C.
      by_row: True scores each row by itself, as choices: C is S, `num_labels` 1.
    """

    encoder: nn.Module
    num_labels: int
    by_row: bool = False

    @nn.compact
    def __call__(
        self,
        input_ids: jax.Array,
        attention_mask: jax.Array,
        *,
        deterministic: bool = True,
    ) -> Outputs:
        """Scores rows, whose padding is at their end."""
        B, S, L = input_ids.shape
        c = self.encoder.config
        rows = input_ids.reshape(-1, L), attention_mask.reshape(-1, L)
        x = self.encoder(*rows, deterministic=deterministic)
        tokens = self.encoder.attend(x).astype(jnp.float32).reshape(B, S, L, -1)
        last = jnp.maximum(rows[1].sum(-1) - 1, 0)[:, None, None]
        x = jnp.take_along_axis(x, last, axis=1).reshape(B, S, -1)
        x = layers.Dropout(c.hidden_dropout_prob)(x, deterministic)
        score = layers.Dense(
            self.num_labels, c.initializer_range, c.dtype, False, name="score"
        )
        labels = score(x)[..., 0] if self.by_row else score(x.sum(1))
        return Outputs(labels.astype(jnp.float32), tokens)


def fine_tuning_totals(
    outputs: Outputs,
    input_ids: jax.Array,
    attention_mask: jax.Array,
    labels: jax.Array,
    weights: jax.Array,
) -> dict[str, tuple[jax.Array, jax.Array]]:
    """task_loss, accuracy and lm_loss as sums and counts (equations 3 to 5).

    Args:
      outputs: of a `TaskHead`.
      input_ids, attention_mask: its inputs `[B, S, L]`.
      labels, weights: `[B]`; a row with weight 0 has no label.
    """
    right = outputs.labels.argmax(-1) == labels
    real = attention_mask[:, :, 1:].astype(jnp.float32)
    return {
        "task_loss": cross_entropy(outputs.labels, labels, weights),
        "accuracy": ((right * weights).sum(), weights.sum()),
        "lm_loss": cross_entropy(
            outputs.tokens[:, :, :-1],
            input_ids[:, :, 1:],
            real * weights[:, None, None],
        ),
    }
