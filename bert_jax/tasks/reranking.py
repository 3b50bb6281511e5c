"""Training of rerankers (cross-encoders): one score for a query and a document."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from bert_jax import files, metrics
from bert_jax.data import text_groups
from bert_jax.data.labelled_files import Problems
from bert_jax.data.ragged import ChoiceRows, RaggedRows
from bert_jax.data.text_groups import SCORED, TRIPLETS, GroupColumns, TextGroups
from bert_jax.files import counted
from bert_jax.inference.model import Model
from bert_jax.inference.rank import Ranked
from bert_jax.models import heads
from bert_jax.models.config import EncoderConfig
from bert_jax.objectives.losses import Batch, Params, Totals, throughput_totals
from bert_jax.objectives.ranking import LOSSES, Loss
from bert_jax.pretrained import Checkpoint, cross_encoder
from bert_jax.tasks import fine_tuning
from bert_jax.tasks.demo import Call, next_steps
from bert_jax.tasks.fine_tuning import (
    POOLER,
    FineTuningConfig,
    check_pooling,
    row_pooling,
)
from bert_jax.tokenizers import Tokenizer

SEQUENCES = ("input_ids", "token_type_ids")

# Pairs that are tokenized together.
CHUNK = 1024

# Documents that a demonstration ranks.
SHOWN = 5


@dataclasses.dataclass(frozen=True)
class Rankings:
    """Queries with their documents.

    Attributes:
      queries: N texts.
      documents: the documents of each query, at least one.
      labels: a number for each document; None for files without.
    """

    queries: list[str]
    documents: list[list[str]]
    labels: list[list[float]] | None

    def exists(self) -> np.ndarray:
        """bool `[N, C]`: False where a query has fewer documents than others."""
        C = max(map(len, self.documents))
        return np.array([[c < len(row) for c in range(C)] for row in self.documents])


def rankings_of(groups: TextGroups, is_per_query: bool) -> Rankings:
    """The rows of a file as queries with documents.

    Of rows without numbers the second text has the label 1, and the later ones 0.
    Margins become numbers with the same differences.

    Args:
      groups: rows of two texts or more.
      is_per_query: True joins pairs, rows of one document, that have the same query.
    """
    queries = [row[0] for row in groups.texts]
    documents = [[text for text in row[1:] if text] for row in groups.texts]
    labels: list[list[float]] | None = None
    if groups.kind == TRIPLETS:
        labels = [[1.0] + [0.0] * (len(row) - 1) for row in documents]
    elif groups.kind == SCORED and groups.labels is not None:
        labels = []
        for row, numbers in zip(documents, _numbers(groups), strict=True):
            of_row = list(numbers)
            if len(numbers) < len(groups.texts[0]) - 1:
                of_row = [0.0, *(-x for x in of_row)]
            labels.append(of_row[: len(row)])
    rankings = Rankings(queries, documents, labels)
    are_pairs = max(map(len, documents)) == 1
    return _joined(rankings) if is_per_query and are_pairs else rankings


def _numbers(groups: TextGroups) -> list[tuple[float, ...]]:
    """The numbers of scored texts; [] for others."""
    is_scored = groups.kind == SCORED and groups.labels is not None
    return cast(list[tuple[float, ...]], groups.labels) if is_scored else []


def _joined(rankings: Rankings) -> Rankings:
    """One row for each query, in the order of its first one."""
    rows: dict[str, list[int]] = {}
    for i, query in enumerate(rankings.queries):
        rows.setdefault(query, []).append(i)

    def join(lists: list[list[Any]]) -> list[list[Any]]:
        return [[x for i in places for x in lists[i]] for places in rows.values()]

    labels = rankings.labels and join(rankings.labels)
    return Rankings(list(rows), join(rankings.documents), labels)


def rows_of(
    rankings: Rankings, tokenizer: Tokenizer, max_length: int, max_score: float
) -> ChoiceRows:
    """Pairs of tokens `[N, C, L]`, with `labels` float32 `[N, C]`, divided by the most.

    A query with fewer documents than others has pairs without a token.
    """
    exists = rankings.exists()
    firsts = [
        query
        for query, row in zip(rankings.queries, rankings.documents, strict=True)
        for _ in row
    ]
    seconds = [text for row in rankings.documents for text in row]
    tokens: dict[str, list[np.ndarray]] = {name: [] for name in SEQUENCES}
    for start in range(0, len(firsts), CHUNK):
        part = slice(start, start + CHUNK)
        batch = tokenizer(firsts[part], seconds[part], max_length=max_length)
        real = batch["attention_mask"] > 0
        for name, sequence in tokens.items():
            sequence += [x[y] for x, y in zip(batch[name], real, strict=True)]
    sequences = {}
    for name, sequence in tokens.items():
        each = iter(sequence)
        sequences[name] = [next(each) if x else _NOTHING for x in exists.ravel()]
    labels = np.zeros(exists.shape, np.float32)
    if rankings.labels is not None:
        labels[exists] = np.concatenate(rankings.labels) / max_score
    return ChoiceRows(
        RaggedRows(
            sequences,
            fill={"input_ids": tokenizer.pad_id, "token_type_ids": 0},
            columns={},
            max_length=max_length,
            pads_left=tokenizer.specials.pads_left,
        ),
        choices=exists.shape[1],
        columns={"labels": labels},
    )


_NOTHING = np.zeros(0, np.int32)


@dataclasses.dataclass(frozen=True)
class RerankingTask(fine_tuning.FineTuningTask[ChoiceRows]):
    """Training of a reranker with its rows.

    Attributes:
      rankings: the queries and documents of each split.
      objective: the loss.
    """

    rankings: Mapping[str, Rankings]
    objective: Loss

    head = heads.SequenceClassifier
    output = "classifier"
    fields = {"num_labels": 1}

    def logits(
        self, model: nn.Module, params: Params, batch: Batch, key: jax.Array | None
    ) -> jax.Array:
        """`[B, C]`, one for each document."""
        shape = batch["input_ids"].shape
        flat = {x: batch[x].reshape(-1, shape[-1]) for x in fine_tuning.INPUTS}
        return super().logits(model, params, flat, key)[:, 0].reshape(shape[:-1])

    def comparable(
        self, logits: jax.Array, batch: Batch
    ) -> tuple[jax.Array, jax.Array]:
        """Logits `[B, C, 1]` and weights `[B, C]`, for a teacher."""
        return logits[..., None], _exists(batch)

    def totals(self, model: nn.Module, batch: Batch, logits: jax.Array) -> Totals:
        """Sums and counts: loss, tokens and flops."""
        exists = _exists(batch)
        mask = batch["attention_mask"] * exists[..., None]
        flat = mask.reshape(-1, mask.shape[-1])
        return {
            "loss": self.objective.function(logits, batch["labels"], exists),
            **throughput_totals(model.encoder.config, flat, jnp.zeros(())),
        }

    def predictions(self, logits: jax.Array) -> dict[str, jax.Array]:
        """`logits` `[B, C]`, as float32."""
        return {"logits": logits.astype(jnp.float32)}

    def score(self, split: str, predictions: Mapping[str, Any]) -> dict[str, float]:
        """The scores of `scores_of` for a split; {} without labels."""
        return scores_of(self.rankings[split], predictions["logits"])

    def constant_score(self, split: str) -> float:
        """The score of documents that all have one score."""
        rankings = self.rankings[split]
        constant = scores_of(rankings, np.zeros(rankings.exists().shape))
        return constant[self.best_metric] if self.best_metric in _SHARES else 0.0

    def to_model(self, module: nn.Module, params: Params) -> Model:
        """The finished model, which declares the activation of its scores."""
        model = super().to_model(module, params)
        declared = cross_encoder.declared(self.objective.activation)
        # A CrossEncoder has no vectors, and its directory no pooling of vectors.
        return dataclasses.replace(
            model, pooling=None, sparse=None, extra={**model.extra, **declared}
        )

    def write_predictions(
        self, workdir: Path, split: str, predictions: Mapping[str, Any]
    ) -> None:
        """Writes predictions/<split>.tsv: a score for each document, and its label."""
        rankings = self.rankings[split]
        exists = rankings.exists()
        rows, places = np.nonzero(exists)
        columns: dict[str, Sequence[Any]] = {
            "index": rows.tolist(),
            "document": places.tolist(),
            "prediction": [f"{x:.4f}" for x in predictions["logits"][exists]],
        }
        if rankings.labels is not None:
            columns["label"] = [f"{x:g}" for row in rankings.labels for x in row]
        table = [columns, *zip(*columns.values(), strict=True)]
        file = workdir / f"predictions/{split}.tsv"
        files.make_directory(file.parent)
        files.write_text(file, "".join("\t".join(map(str, x)) + "\n" for x in table))

    def demo(self, model: Model, workdir: Path) -> str:
        """The first held-out query with some documents in the order of their scores."""
        query, documents = self._first
        # One query has one list of documents.
        ranked = cast(list[Ranked], model.rank(query, documents))
        lines = [f"  {x.score:7.3f}  {x.text}" for x in ranked]
        return "\n".join(["", f"held out: {query!r}", *lines])

    def next_steps(self, workdir: Path, shell: bool) -> str:
        """The model's directory and a call to try."""
        query, documents = self._first
        record = {"query": query, "documents": documents}
        return next_steps(workdir, Call("rank", self._first, "", record), shell)

    @property
    def _first(self) -> tuple[str, list[str]]:
        """A query and documents, those of other queries too if it has only one."""
        rankings = self.rankings["eval"]
        documents = rankings.documents[0]
        if len(documents) == 1:
            documents = [x for row in rankings.documents[:SHOWN] for x in row]
        return rankings.queries[0], list(dict.fromkeys(documents))[:SHOWN]


def _exists(batch: Batch) -> jax.Array:
    """bool `[B, C]`: pairs of rows of data, not those that only fill the batch."""
    mask = batch["attention_mask"]
    valid = batch.get("valid", jnp.ones(len(mask), bool))
    return (mask > 0).any(-1) & valid[:, None]


# Scores that a constant has more than 0 of.
_SHARES = ("ap", "ndcg@10")


def metrics_of(rankings: Rankings) -> tuple[str, ...]:
    """The scores for queries with these labels, the most important first.

    With several documents a query they are those of rankings, in which labels above 0
    are relevant. Single documents of classes 0 and 1 have those of thresholds, others
    correlations, and so have labels below 0, which are no grades.
    """
    labels = np.concatenate(rankings.labels or [[]])
    if (labels < 0).any():
        return "spearman", "pearson"
    if max(map(len, rankings.documents)) > 1:
        return "ndcg@10", "mrr@10", "map"
    return ("ap", "accuracy", "f1") if _are_classes(labels) else ("spearman", "pearson")


def _are_classes(labels: np.ndarray) -> bool:
    return set(np.unique(labels).tolist()) == {0.0, 1.0}


def scores_of(rankings: Rankings, logits: np.ndarray) -> dict[str, float]:
    """The scores of logits `[N, C]` by the names of `metrics_of`; {} without labels."""
    if rankings.labels is None:
        return {}
    names, exists = metrics_of(rankings), rankings.exists()
    values = np.asarray(logits, np.float64)
    labels = np.concatenate(rankings.labels)
    if names[0] == "spearman":
        correlations = {"spearman": metrics.spearman, "pearson": metrics.pearson}
        return {name: correlations[name](labels, values[exists]) for name in names}
    if names[0] == "ap":
        of_pairs = metrics.pair_scores(labels, values[exists])
        return {name: of_pairs[name] for name in names}
    relevant = [i for i, row in enumerate(rankings.labels) if max(row) > 0]
    scores = metrics.reranking_scores(
        [rankings.labels[i] for i in relevant],
        [values[i][exists[i]] for i in relevant],
    )
    return {name: scores[name] for name in names}


@dataclasses.dataclass
class RerankingConfig(FineTuningConfig[TextGroups]):
    """Training of a reranker, as a recipe describes it.

    It reads a query and a document together, and gives them one score (Nogueira and
    Cho, 2019). The columns of a file decide what is learnt: a query, a document and a
    number; a query, its positive and negatives, which count as 1 and 0; or a query, a
    list of documents and a list of numbers.

    Attributes:
      train, dev: .tsv, .csv, .jsonl or .parquet files; `dev` may be of another kind
        than `train`.
      texts: columns of texts, by name or position from 0: the query, then documents.
        Empty finds them.
      label: the column of numbers; None finds it, "" means that there is none.
      loss: a name in `objectives.ranking.LOSSES`. None takes binary_cross_entropy for
        a document a row, and lambda for several. A loss that compares the documents of
        a query joins pairs with the same query.
      max_score: labels are divided by it; for binary_cross_entropy they have to be
        from 0 to this.
      pooling: see `ClassificationConfig`; None takes "pooler", the only one whose
        directories sentence-transformers and transformers open.

    >>> import json
    >>> row = {"query": "a b", "positive": "a c", "negative": "d"}
    >>> _ = Path("ranked.jsonl").write_text(json.dumps(row))
    >>> RerankingConfig(train="ranked.jsonl", dev="ranked.jsonl").count()
    1
    """

    texts: tuple[str, ...] = ()
    label: str | None = None
    loss: str | None = None
    max_score: float = 1.0
    pooling: str | None = None

    def check(self) -> None:
        """Raises ValueError for a field that cannot be right."""
        super().check()
        check_pooling(self.pooling)
        if self.loss is not None and self.loss not in LOSSES:
            raise ValueError(
                f"task.loss={self.loss!r} is unknown; choose one of {', '.join(LOSSES)}"
            )
        if not self.max_score > 0:
            raise ValueError(
                f"task.max_score={self.max_score}; it must be above 0, such as the "
                "highest label"
            )

    def read(
        self, path: str, like: TextGroups | None = None, labelled: bool = True
    ) -> TextGroups:
        """The rows of a file; one of another kind than `train` finds its own columns.

        Raises ValueError for rows of one text, and for labelled rows without numbers
        and negatives.
        """
        groups = self._groups(path, like, labelled)
        if len(groups.texts[0]) < 2:
            raise ValueError(
                f"{path} has rows of one text; give a query and a document, and name "
                "the columns with task.texts if they were not found"
            )
        if labelled and groups.kind not in (SCORED, TRIPLETS):
            raise ValueError(
                f"{path} has pairs without numbers and negatives; add a column of "
                "labels, or of negatives"
            )
        return groups

    def _groups(self, path: str, like: TextGroups | None, labelled: bool) -> TextGroups:
        if like is None:
            return text_groups.read(path, GroupColumns(self.texts, self.label))
        try:
            return text_groups.read(path, like.columns, labelled)
        except text_groups.OtherColumnsError:
            return text_groups.read(path, labelled=labelled)

    def count(self) -> int:
        """The number of rows to train on: pairs, or queries with documents."""
        train = self.train_content
        return len(rankings_of(train, self._loss(train).per_query).queries)

    def prepare(
        self, workdir: Path, encoder: EncoderConfig, seed: int
    ) -> RerankingTask:
        """Reads all files, checks and tokenizes them."""
        content = self.content
        train = content["train"]
        loss = self._loss(train)
        for split, groups in content.items():
            if split in ("train", "eval") and loss == LOSSES["binary_cross_entropy"]:
                _check_range(groups, self.max_score)
        rankings = {
            split: rankings_of(groups, loss.per_query)
            for split, groups in content.items()
        }
        _check_several(rankings["train"], loss, train.path)
        start, tokenizer = self.start(encoder)
        _describe(content, rankings)
        return RerankingTask(
            rows={
                split: rows_of(x, tokenizer, self.max_length, self.max_score)
                for split, x in rankings.items()
            },
            labels=_labels(start),
            metrics=metrics_of(rankings["eval"]),
            tokenizer=tokenizer,
            max_length=self.max_length,
            start=start,
            content=content,
            pooling=self._pooling(start),
            teacher=self.loaded_teacher,
            rankings=rankings,
            objective=loss,
        )

    def _loss(self, train: TextGroups) -> Loss:
        usual = "lambda" if len(train.texts[0]) > 2 else "binary_cross_entropy"
        return LOSSES[self.loss or usual]

    def _pooling(self, start: Checkpoint | None) -> str | None:
        """A reranker or a classifier keeps its own; others get their family's."""
        is_row = start is not None and isinstance(start.head, RerankingTask.head)
        wanted = self.pooling or (None if is_row else POOLER)
        return row_pooling(wanted, start, RerankingTask.head)


def _labels(start: Checkpoint | None) -> tuple[str, ...]:
    """The name of the score, as a reranker to start from has it; by default none."""
    is_reranker = (
        start is not None
        and isinstance(start.head, RerankingTask.head)
        and start.head.num_labels == 1
    )
    return start.labels if start is not None and is_reranker else ()


def _check_range(groups: TextGroups, max_score: float) -> None:
    """Raises ValueError for labels that are not from 0 to `max_score`."""
    problems = Problems(groups.path)
    # Rows without numbers have labels of 0 and 1.
    for line, numbers in zip(groups.lines, _numbers(groups), strict=False):
        wrong = [x for x in numbers if not 0 <= x <= max_score]
        if wrong:
            remedy = f"is not from 0 to {max_score:g}; set task.max_score, or "
            remedy += "task.loss=squared_error, which reads all numbers"
            problems.add(line, "label", f"{wrong[0]:g}", remedy)
    problems.raise_any()


def _check_several(train: Rankings, loss: Loss, path: str) -> None:
    """Raises ValueError for a loss per query if no query has two documents."""
    if loss.per_query and max(map(len, train.documents)) < 2:
        raise ValueError(
            f"{path} has one document for each query, and this loss compares several; "
            "set task.loss=binary_cross_entropy, or add documents"
        )


def _describe(
    content: Mapping[str, TextGroups], rankings: Mapping[str, Rankings]
) -> None:
    """Prints the size of the data; warns of held-out rows that are in `train`, too."""
    train, dev = content["train"], content["eval"]
    same = text_groups.overlap(train, dev)
    rows = f"{counted(len(dev), 'row')} of {dev.path}"
    fine_tuning.warn_of_overlap(same, rows, train.path)
    sizes = [
        f"{counted(len(x.queries), 'row')} "
        f"({counted(sum(map(len, x.documents)), 'document')})"
        for x in (rankings["train"], rankings["eval"])
    ]
    print(f"{sizes[0]} to train on, {sizes[1]} held out")
