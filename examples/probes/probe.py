"""Linear probes: a logistic regression on the hidden states of a frozen model.

The model is not trained. Its hidden states are computed once, and a linear classifier
is fitted to each set of layers (Devlin et al., 2018, section 5.3, where a BiLSTM takes
its place). One set is a mix of all layers whose weights are learnt, as ELMo's are.
"""

import abc
import dataclasses
import importlib.util
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from bert_jax import load, metrics
from bert_jax.data import (
    RaggedRows,
    Sentences,
    Table,
    conll,
    files_by_split,
    tables,
    word_windows,
)
from bert_jax.inference import Model
from examples.probes.mixing import MixedRegression

Scores = dict[str, dict[str, float]]


# Layers, of which 0 is the embeddings, and one of "sum", "concatenate" and "mix".
FeatureSet = tuple[tuple[int, ...], str]


def feature_sets(depth: int) -> dict[str, FeatureSet]:
    """The sets of layers of a model with `depth` layers, by name.

    Table 7 of the paper has the embeddings, the last two layers, and three sets of
    several layers, where its sums are weighted. `mix` learns the weights of a mean of
    all layers and the embeddings (Peters et al., 2018, equation 1).
    """
    single = {f"layer_{i}": ((i,), "sum") for i in range(depth + 1)}
    everything = {
        "sum_all": (tuple(range(1, depth + 1)), "sum"),
        "mix": (tuple(range(depth + 1)), "mix"),
    }
    if depth < 4:
        return single | everything
    last = tuple(range(depth - 3, depth + 1))
    several = {
        "sum_last_four": (last, "sum"),
        "concat_last_four": (last, "concatenate"),
    }
    return single | several | everything


def combine(states: np.ndarray, layers: Sequence[int], way: str) -> np.ndarray:
    """Some layers of `[N, layers + 1, D]`: `[N, D]`, or `[N, len(layers) * D]`.

    A "mix" is fitted later, to `[N, len(layers), D]`.
    """
    chosen = states[:, list(layers)]
    if way == "mix":
        return chosen
    return chosen.reshape(len(chosen), -1) if way == "concatenate" else chosen.sum(1)


@dataclasses.dataclass
class LinearProbe(abc.ABC):
    """A logistic regression on features of a frozen model.

    Attributes:
      init_from: the model: a directory or a name on the Hub.
      train, dev: labelled files to fit on, and to score on.
      test: further labelled files to score on.
      features: names of `feature_sets`; none takes all.
      C: the inverse weight of the L2 penalty; features have mean 0 and deviation 1.
        0.01 does well on SST-2's dev with every set; scikit-learn's 1 overfits.
      iterations: the limit of the solver.
    """

    init_from: str | None = None
    train: str | None = None
    dev: str | None = None
    test: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    C: float = 0.01
    iterations: int = 1000

    # Ways to turn the states of tokens into one state for each label.
    poolings: ClassVar[tuple[str, ...]]

    def run(self, workdir: str | Path) -> list[dict[str, Any]]:
        """Fits and scores each set of features, and writes `workdir/scores.json`.

        Returns:
          For each set a row with `features`, its name, `pooling`, and `scores` by name
          on "eval" and on each test file by its stem. A mix has its `weights` too.

        Raises:
          ValueError: for anything wrong with the fields, the files or the model, and
            where scikit-learn is missing; before anything is computed.
        """
        self.check()
        data = {split: self.read(file) for split, file in self.files().items()}
        model, depth = self.start()
        sets = self.chosen_sets(depth)
        workdir = Path(workdir)
        workdir.mkdir(parents=True, exist_ok=True)
        rows = []
        for pooling in self.poolings:
            states = {k: self.states(model, x, pooling) for k, x in data.items()}
            for name, layers in sets.items():
                features = {k: combine(x, *layers) for k, x in states.items()}
                classifier = self.fit(features["train"], self.labels(data["train"]))
                scores = {
                    split: self.score(data[split], classifier.predict(features[split]))
                    for split in data
                    if split != "train"
                }
                rows.append({"features": name, "pooling": pooling, "scores": scores})
                if isinstance(classifier, MixedRegression):
                    rows[-1]["weights"] = classifier.shares.tolist()
                print(format_row(rows[-1]), flush=True)
        content = {"model": self.init_from, "sets": rows}
        (workdir / "scores.json").write_text(json.dumps(content, indent=2) + "\n")
        return rows

    def check(self) -> None:
        """Raises ValueError for a field that cannot be right."""
        for field in ("init_from", "train", "dev"):
            if not getattr(self, field):
                raise ValueError(f"{field} is missing; set it with --config.{field}")
        if self.C <= 0 or self.iterations < 1:
            raise ValueError(
                f"C={self.C} must be above 0 and iterations={self.iterations} at least "
                "1; change them"
            )
        if importlib.util.find_spec("sklearn") is None:
            raise ValueError(
                "the logistic regression is scikit-learn's, which is not installed; "
                "pip install 'bert_jax[experiments]'"
            )

    def files(self) -> dict[str, str]:
        """Files by split."""
        return files_by_split(self.train, self.dev, self.test)

    def chosen_sets(self, depth: int) -> dict[str, FeatureSet]:
        """The sets that `features` names. Raises ValueError for an unknown one."""
        known = feature_sets(depth)
        for name in self.features:
            if name not in known:
                raise ValueError(
                    f"features has {name!r}; this model has {', '.join(known)}"
                )
        return {name: known[name] for name in self.features or known}

    def start(self) -> tuple[Any, int]:
        """The model, and how many layers it has above the embeddings."""
        model = load(self.init_from)
        return model, len(model.config.layer_order)

    def fit(self, features: np.ndarray, labels: Sequence[str]) -> Any:
        """A regression fitted to `[N, D]`, or to `[N, layers, D]` of a mix."""
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        if features.ndim == 3:
            classifier = MixedRegression(self.C, self.iterations)
        else:
            classifier = make_pipeline(
                StandardScaler(), LogisticRegression(C=self.C, max_iter=self.iterations)
            )
        classifier.fit(features, labels)
        return classifier

    @abc.abstractmethod
    def read(self, file: str) -> Any:
        """The examples of a file."""

    @abc.abstractmethod
    def states(self, model: Any, data: Any, pooling: str) -> np.ndarray:
        """The states of all layers for the examples, `[N, layers + 1, D]`."""

    @abc.abstractmethod
    def labels(self, data: Any) -> list[str]:
        """The label of each of the N states."""

    @abc.abstractmethod
    def score(self, data: Any, predictions: np.ndarray) -> dict[str, float]:
        """Scores of predicted labels `[N]`, by name."""


@dataclasses.dataclass
class TextProbe(LinearProbe):
    """Classes of texts.

    Attributes:
      text, label: columns, by name or position from 0; None finds them.
      poolings: ways to turn the states of tokens into one, see `Model.embed`.

    >>> TextProbe(features=("layer_1", "sum_all")).chosen_sets(depth=2)
    {'layer_1': ((1,), 'sum'), 'sum_all': ((1, 2), 'sum')}
    """

    text: str | None = None
    label: str | None = None
    poolings: tuple[str, ...] = ("cls", "mean")

    def read(self, file: str) -> Table:
        """Texts with labels."""
        return tables.read(file, tables.Columns(self.text, None, self.label))

    def states(self, model: Model, data: Table, pooling: str) -> np.ndarray:
        """Pooled states of texts."""
        layers = range(len(model.config.layer_order) + 1)
        vectors = model.embed(data.texts, pooling, layers, normalize=False)
        return vectors.reshape(len(data), len(layers), -1)

    def labels(self, data: Table) -> list[str]:
        """The labels of the file."""
        return data.labels

    def score(self, data: Table, predictions: np.ndarray) -> dict[str, float]:
        """Accuracy."""
        return {"accuracy": metrics.accuracy(data.labels, predictions)}


@dataclasses.dataclass
class WordProbe(LinearProbe):
    """Labels of words, each from the state of its first piece.

    Each word is labelled alone: neighbouring words and their labels count only through
    the states of the model.

    Attributes:
      token, label: columns, by name or position from 0; None takes the first and the
        last.
      max_length: of a row in tokens; longer sentences are cut between words.
      batch_size: rows computed together.

    >>> WordProbe(init_from="start", train="train.conll").check()
    Traceback (most recent call last):
    ValueError: dev is missing; set it with --config.dev
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
        """States of the first pieces of words."""
        if model.tokenizer is None:
            raise ValueError(f"{self.init_from} has no tokenizer; add its files")
        length = min(self.max_length, model.max_length)
        pieces = word_windows.word_pieces(model.tokenizer, data.words)
        # Each sentence is a document of its own: it is read alone.
        rows = word_windows.lay_out(model.tokenizer, pieces, range(len(data)), length)
        padded = RaggedRows(
            {"input_ids": rows.ids, "token_type_ids": rows.types},
            fill={"input_ids": model.tokenizer.pad_id, "token_type_ids": 0},
            columns={},
            max_length=length,
        )
        return token_states(model, padded, rows.row, rows.position, self.batch_size)

    def labels(self, data: Sentences) -> list[str]:
        """The labels of all sentences."""
        return [label for labels in data.labels for label in labels]

    def score(self, data: Sentences, predictions: np.ndarray) -> dict[str, float]:
        """F1 of whole entities; accuracy for other labels."""
        if not metrics.are_entities(self.labels(data)):
            return {"accuracy": metrics.accuracy(self.labels(data), predictions)}
        words = iter(predictions.tolist())
        predicted = [[next(words) for _ in labels] for labels in data.labels]
        return {"f1": metrics.entity_score(data.labels, predicted).f1}


def token_states(
    model: Model,
    rows: RaggedRows,
    row: np.ndarray,
    position: np.ndarray,
    batch_size: int,
) -> np.ndarray:
    """States of single tokens in all layers, float32 `[W, layers + 1, D]`.

    Args:
      model: computes them.
      rows: rows of tokens.
      row, position: row and position of each of the W tokens, `[W]`.
      batch_size: rows computed together; a batch has rows of similar length.
    """
    depth = len(model.config.layer_order)
    states = np.empty((len(row), depth + 1, model.config.hidden_size), np.float32)
    order = np.argsort(rows.lengths, kind="stable")
    for start in range(0, len(order), batch_size):
        batch = order[start : start + batch_size]
        # A last batch with fewer rows repeats some, so that no program is compiled.
        inputs = rows.gather(np.resize(batch, batch_size))
        hidden = np.asarray(model.hidden_states(**inputs))
        place = np.full(len(order), -1)
        place[batch] = np.arange(len(batch))
        words = np.flatnonzero(place[row] >= 0)
        tokens = hidden[:, place[row[words]], position[words]]
        states[words] = tokens.swapaxes(0, 1)
    return states


def format_row(row: Mapping[str, Any]) -> str:
    """A row of scores as a line."""
    names = f"{row['features']:18} {row['pooling']:6}"
    scores = (
        f"{split} {name} {score:.4f}"
        for split, of_split in row["scores"].items()
        for name, score in of_split.items()
    )
    weights = " ".join(f"{x:.2f}" for x in row.get("weights", ()))
    return "  ".join([names, *scores, *([f"weights {weights}"] if weights else [])])
