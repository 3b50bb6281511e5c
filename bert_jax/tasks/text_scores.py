"""The base of tasks that train scores of a query with documents, which are no cosines:
their rows, their losses, and their scores on held-out rows.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax import files, metrics
from bert_jax.data import text_groups
from bert_jax.data.ragged import ChoiceRows
from bert_jax.data.text_groups import (
    PAIRS,
    SCORED,
    TRIPLETS,
    GroupColumns,
    TextGroups,
)
from bert_jax.objectives import contrastive
from bert_jax.objectives.distillation import Total
from bert_jax.tasks import embedding, fine_tuning
from bert_jax.tasks.fine_tuning import FineTuningConfig
from bert_jax.tasks.run_config import Run

# The loss of each kind of rows, where none is set.
USUAL = {PAIRS: "multiple_negatives", TRIPLETS: "multiple_negatives", SCORED: "kl"}

# The score that decides which checkpoint is best.
BEST = {PAIRS: "accuracy", TRIPLETS: "accuracy", SCORED: "spearman"}


@dataclasses.dataclass(frozen=True)
class TextScoresTask(fine_tuning.FineTuningTask[ChoiceRows]):
    """Training of scores, with its rows.

    A loss adds the total `in_batch`, see `found_in_batch`, and predicts `scores`
    `[B, C - 1]`, those of each query with the documents of its row.

    Attributes:
      content: the texts of each file.
    """

    output = ""

    @property
    def fields(self) -> dict[str, Any]:
        """Fields of the head."""
        return {}

    @property
    def best_metric(self) -> str:
        """The score that decides which checkpoint is best."""
        return BEST[self.content["eval"].kind]

    def has_loss(self, batch: Mapping[str, jax.Array]) -> bool:
        """True for a batch with the columns and the labels of the training file."""
        train = self.rows["train"].gather(np.arange(1))
        return all(
            (name in train) == (name in batch)
            and (name not in train or train[name].shape[1:2] == batch[name].shape[1:2])
            for name in ("input_ids", "labels")
        )

    def averages(self, totals: Mapping[str, Any]) -> dict[str, float]:
        """Averages by name: the terms of the loss, and of the vectors."""
        names = [*self.loss_weights, *self.measures]
        named = {k: totals[k] for k in names if k in totals}
        return {k: float(s) / max(float(n), 1e-9) for k, (s, n) in named.items()}

    # Names of totals that are reported beside the terms of the loss.
    measures: ClassVar[tuple[str, ...]] = ("in_batch",)

    def score(self, split: str, predictions: Mapping[str, Any]) -> dict[str, float]:
        """Correlation of scored rows; the share of triplets in their order.

        Pairs are scored by the total `in_batch`.
        """
        groups, scores = self.content[split], predictions["scores"]
        exists = exists_in(groups)
        if groups.kind == SCORED and groups.labels is not None:
            labels = np.asarray(groups.labels)
            if labels.shape[1] < scores.shape[1]:  # margins
                scores, exists = scores[:, :1] - scores[:, 1:], exists[:, 1:]
            labels, scores = labels[exists], scores[exists]
            return {
                "spearman": metrics.spearman(labels, scores),
                "pearson": metrics.pearson(labels, scores),
            }
        if groups.kind == TRIPLETS:
            others = np.where(exists, scores, -np.inf)[:, 1:]
            return {"accuracy": float(np.mean(scores[:, 0] > others.max(1)))}
        return {}

    def report(
        self, split: str, totals: Mapping[str, Any], predictions: Mapping[str, Any]
    ) -> dict[str, float]:
        """Averages, and in evaluation scores."""
        averages = self.averages(totals)
        if split == "train":
            return averages
        scores, kind = self.score(split, predictions), self.content[split].kind
        if kind == PAIRS:
            scores["accuracy"] = averages["in_batch"]
        if kind == TRIPLETS:
            scores[metrics.baseline_name("accuracy")] = self.constant_score(split)
        return averages | scores

    def constant_score(self, split: str) -> float:
        """The score of a model that gives all documents the same."""
        groups = self.content[split]
        if groups.kind == TRIPLETS:
            return float(np.mean([1 / sum(map(bool, row[1:])) for row in groups.texts]))
        return 0.0

    def write_predictions(
        self, workdir: Path, split: str, predictions: Mapping[str, Any]
    ) -> None:
        """Writes predictions/<split>.tsv: the scores of each row's documents."""
        lines = ["index\tscores"]
        for i, (row, scores) in enumerate(
            zip(exists_in(self.content[split]), predictions["scores"], strict=True)
        ):
            shown = " ".join(f"{x:.4f}" for x in scores[row])
            lines.append(f"{i}\t{shown}")
        file = workdir / f"predictions/{split}.tsv"
        files.make_directory(file.parent)
        files.write_text(file, "\n".join([*lines, ""]))


def exists_in(groups: TextGroups) -> np.ndarray:
    """bool `[N, C - 1]`: False where a row has fewer documents than others."""
    return np.array([[bool(text) for text in row[1:]] for row in groups.texts])


def found_in_batch(scores: jax.Array, exists: jax.Array) -> Total:
    """Queries whose positive scores above all documents of other rows.

    Args:
      scores: `[B, B, C - 1]`, of each query with all documents of the batch.
      exists: bool `[B, C]`.
    """
    first = jnp.where(exists[None, :, 1], scores[..., 0], -jnp.inf)
    rows = exists[:, 0] & exists[:, 1]
    right = first.argmax(1) == jnp.arange(len(first))
    return (right & rows).sum().astype(jnp.float32), rows.sum().astype(jnp.float32)


def own(scores: jax.Array) -> jax.Array:
    """The scores `[B, C - 1]` of each row's own documents, of `[B, B, C - 1]`."""
    return jnp.einsum("BBC->BC", scores)


@dataclasses.dataclass
class TextScoresConfig(FineTuningConfig[TextGroups]):
    """The fields of tasks that train scores of a query with documents.

    Attributes:
      train, dev: .tsv, .csv, .jsonl or .parquet files of rows with two texts or more.
      texts: columns of texts, by name or position from 0: the query, the document that
        fits it, documents that do not. Empty finds them.
      label: the column of a teacher's scores, a list for each row; None finds it, ""
        means that there is none.
      loss: multiple_negatives for rows without scores; margin_mse or kl for rows with
        scores. None takes multiple_negatives or kl.
      scale: the factor of scores in the loss.
      query_prompt, document_prompt: text before every query and document; None takes
        that of the model.
      temperature: at which the loss kl compares the model and its teacher.

    >>> import json
    >>> row = {"anchor": "a b", "positive": "a c"}
    >>> _ = Path("scored.jsonl").write_text(json.dumps(row))
    >>> TextScoresConfig(train="scored.jsonl", dev="scored.jsonl").count()
    1
    """

    texts: tuple[str, ...] = ()
    label: str | None = None
    loss: str | None = None
    scale: float = 1.0
    query_prompt: str | None = None
    document_prompt: str | None = None

    def resolve(self, config: Run) -> Run:
        """The shared defaults; checks the loss, and that rows differ."""
        config = super().resolve(config)
        train = config.task.train_content
        if contrastive.LOSSES[self.loss_of(train)].in_batch:
            embedding.check_distinct(train)
        return config

    def read(
        self, path: str, like: TextGroups | None = None, labelled: bool = True
    ) -> TextGroups:
        """The rows of a file; one of another kind than `train` has its own columns."""
        try:
            columns = like.columns if like else GroupColumns(self.texts, self.label)
            groups = text_groups.read(path, columns, labelled)
        except text_groups.OtherColumnsError:
            groups = text_groups.read(path, labelled=labelled)
        if groups.kind not in USUAL:
            raise ValueError(
                f"{path} has {groups.describe()}; this task needs rows of a query and "
                "documents: name their columns with task.texts"
            )
        return groups

    def loss_of(self, train: TextGroups) -> str:
        """The name of the loss, checked against the rows that it is to read."""
        name = self.loss or USUAL[train.kind]
        needed = {"multiple_negatives": (PAIRS, TRIPLETS)}.get(name, (SCORED,))
        if name not in LOSSES:
            raise ValueError(
                f"task.loss={name!r} is unknown; choose one of {', '.join(LOSSES)}"
            )
        if train.kind not in needed or (
            needed == (SCORED,) and len(train.texts[0]) < 3
        ):
            rows = "rows of 2 texts or more without scores"
            if needed == (SCORED,):
                rows = "rows of 3 texts or more with a score for each document"
            raise ValueError(
                f"task.loss={name} reads {rows}, but {train.path} has "
                f"{train.describe()}; choose another loss, or columns with task.texts "
                "and task.label"
            )
        return name


LOSSES = ("multiple_negatives", "margin_mse", "kl")
