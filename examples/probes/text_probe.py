"""What a frozen model knows: a logistic regression on its features, set by set.

The model is not trained; its hidden states are computed once, and each set of them is
judged by what a linear classifier makes of it (Devlin et al., 2018, section 5.3).
"""

import dataclasses
import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from bert_jax import files, metrics
from bert_jax.data import tables
from bert_jax.data.labelled_files import by_split
from bert_jax.data.tables import Table
from bert_jax.inference.model import Model, load


def feature_sets(depth: int) -> dict[str, tuple[tuple[int, ...], bool]]:
    """The features of a model of so many layers, by name.

    Each is its layers, of which 0 is the embeddings, and whether they stand side by
    side; otherwise they are added up. Table 7 of the paper has the embeddings, the last
    two layers, and three sets of several layers, where its sums are weighted.
    """
    each = {f"layer_{i}": ((i,), False) for i in range(depth + 1)}
    everything = {"sum_all": (tuple(range(1, depth + 1)), False)}
    if depth < 4:
        return each | everything
    last = tuple(range(depth - 3, depth + 1))
    several = {"sum_last_four": (last, False), "concat_last_four": (last, True)}
    return each | several | everything


def combined(
    states: np.ndarray, layers: Sequence[int], side_by_side: bool
) -> np.ndarray:
    """Some layers of `[N, layers + 1, D]`: `[N, D]`, or `[N, len(layers) * D]`."""
    chosen = states[:, list(layers)]
    return chosen.reshape(len(chosen), -1) if side_by_side else chosen.sum(1)


@dataclasses.dataclass
class Probe:
    """A logistic regression on features of a frozen model; `run` does all of it.

    Attributes:
      init_from: the model: a directory or a name on the Hub.
      train, dev: files with labels to fit, and to score.
      test: further files with labels to score.
      features: names of `feature_sets`; none takes all.
      C: the inverse of the L2 penalty's weight; features have mean 0 and deviation 1.
        0.01 did well on SST-2's dev whatever the set; scikit-learn's 1 fits too much.
      iterations: of the solver at most.
    """

    init_from: str | None = None
    train: str | None = None
    dev: str | None = None
    test: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    C: float = 0.01
    iterations: int = 1000

    # How the vectors of tokens become that of what has a label.
    poolings: ClassVar[tuple[str, ...]]

    def run(self, workdir: str | Path) -> list[dict[str, Any]]:
        """Fits and scores each set of features, and writes `workdir/scores.json`.

        Returns:
          For each set a row with `features`, its name, `pooling`, and `scores` by name
          on "eval" and on each test file by its stem.

        Raises:
          ValueError: for anything wrong with the fields, the files or the model, and
            where scikit-learn is missing; before anything is computed.
        """
        self.check()
        data = {split: self.read(file) for split, file in self.files().items()}
        model = load(self.init_from)
        sets = self.chosen(len(model.config.layer_order))
        workdir = Path(workdir)
        workdir.mkdir(parents=True, exist_ok=True)
        rows = []
        for pooling in self.poolings:
            states = {k: self.states(model, x, pooling) for k, x in data.items()}
            for name, (layers, side_by_side) in sets.items():
                vectors = {
                    k: combined(x, layers, side_by_side) for k, x in states.items()
                }
                found = self.scores(vectors, data)
                rows.append({"features": name, "pooling": pooling, "scores": found})
                print(shown(rows[-1]), flush=True)
        content = {"model": self.init_from, "sets": rows}
        files.write_json(workdir / "scores.json", content)
        return rows

    def check(self) -> None:
        """Raises ValueError for a field that cannot be right."""
        for field in ("init_from", "train", "dev"):
            if not getattr(self, field):
                raise ValueError(f"{field} is not given; name it with --config.{field}")
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
        return by_split(self.train, self.dev, self.test)

    def chosen(self, depth: int) -> dict[str, tuple[tuple[int, ...], bool]]:
        """The sets that are asked for. Raises ValueError for an unknown one."""
        known = feature_sets(depth)
        for name in self.features:
            if name not in known:
                raise ValueError(
                    f"features has {name!r}; this model has {', '.join(known)}"
                )
        return {name: known[name] for name in self.features or known}

    def scores(
        self, vectors: Mapping[str, np.ndarray], data: Mapping[str, Any]
    ) -> dict[str, dict[str, float]]:
        """Scores by split of a regression that is fitted to `vectors["train"]`."""
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        fitted = make_pipeline(
            StandardScaler(), LogisticRegression(C=self.C, max_iter=self.iterations)
        )
        fitted.fit(vectors["train"], self.labels(data["train"]))
        return {
            split: self.score(data[split], fitted.predict(vectors[split]))
            for split in data
            if split != "train"
        }

    def read(self, file: str) -> Any:
        """A file's examples."""
        raise NotImplementedError

    def states(self, model: Model, data: Any, pooling: str) -> np.ndarray:
        """What every layer makes of the examples, `[N, layers + 1, D]`."""
        raise NotImplementedError

    def labels(self, data: Any) -> list[str]:
        """The label of each vector, N of them."""
        raise NotImplementedError

    def score(self, data: Any, predictions: np.ndarray) -> dict[str, float]:
        """How good labels `[N]` are, by the names of scores."""
        raise NotImplementedError


@dataclasses.dataclass
class TextProbe(Probe):
    """Classes of texts.

    Attributes:
      text, label: columns, by name or position from 0; None finds them.
      poolings: how the tokens of a text become one vector, see `Model.embed`.

    >>> TextProbe(features=("layer_1", "sum_all")).chosen(depth=2)
    {'layer_1': ((1,), False), 'sum_all': ((1, 2), False)}
    """

    text: str | None = None
    label: str | None = None
    poolings: tuple[str, ...] = ("cls", "mean")

    def read(self, file: str) -> Table:
        """Texts with labels."""
        return tables.read(file, tables.Columns(self.text, None, self.label))

    def states(self, model: Model, data: Table, pooling: str) -> np.ndarray:
        """Vectors of texts."""
        layers = range(len(model.config.layer_order) + 1)
        found = model.embed(data.texts, pooling, layers, normalize=False)
        return found.reshape(len(data), len(layers), -1)

    def labels(self, data: Table) -> list[str]:
        """Those of the file."""
        return data.labels

    def score(self, data: Table, predictions: np.ndarray) -> dict[str, float]:
        """Accuracy."""
        return {"accuracy": metrics.accuracy(data.labels, predictions)}


def shown(row: Mapping[str, Any]) -> str:
    """A row of scores as a line."""
    names = f"{row['features']:18} {row['pooling']:6}"
    scores = (
        f"{split} {name} {score:.4f}"
        for split, found in row["scores"].items()
        for name, score in found.items()
    )
    return "  ".join([names, *scores])
