"""Tests of a classifier whose attention weights are changed."""

import dataclasses
import functools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from matplotlib.figure import Figure

import bert_jax
from bert_jax import metrics
from bert_jax.data import tables
from bert_jax.inference import Model
from bert_jax.models import BertConfig, SequenceClassifier
from examples.explanation import weights

# Texts computed together, and the step of the lengths that they are padded to.
BATCH_SIZE, STEP = 32, 16


@functools.partial(jax.jit, static_argnums=(0, 1))
def outputs(
    head: nn.Module,
    kind: str,
    params: Mapping[str, Any],
    batch: Mapping[str, Any],
    layers: jax.Array,
    key: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Probabilities `[B, C]` with other weights, and each text's `[layers, B]` largest.

    Args:
      head: a classifier.
      kind: "uniform" or "permuted".
      params: of the head.
      batch: arrays of the tokenizer.
      layers: bool `[layers]`; the others keep their weights.
      key: of the permutations.
    """
    peaks = {}

    def change(old: jax.Array, seen: jax.Array, layer: int) -> jax.Array:
        peaks[layer] = weights.largest(old, seen)
        if kind == "uniform":
            new = weights.uniform(old, seen)
        else:
            layer_key = jax.random.fold_in(key, layer)
            order = weights.random_order(layer_key, seen, old.shape)
            new = weights.permuted(old, order)
        return jnp.where(layers[layer], new, old)

    with nn.intercept_methods(weights.intercept(change)):
        logits: Any = head.apply({"params": params}, **batch)
    return jax.nn.softmax(logits), jnp.stack([peaks[i] for i in sorted(peaks)])


@dataclasses.dataclass
class ChangedAttention:
    """Answers of a classifier whose attention weights are changed.

    Attributes:
      model: a fine-tuned classifier of the family of BERT: a run or a directory.
      data: a labelled file.
      text, label: columns, by name or position from 0; None finds them.
      count: the first so many rows are read; 0 takes all.
      permutations: of each text, of which the median counts.
      seed: of the permutations.
    """

    model: str | None = None
    data: str | None = None
    text: str | None = None
    label: str | None = None
    count: int = 0
    permutations: int = 100
    seed: int = 0

    def run(self, workdir: Path) -> dict[str, Any]:
        """Computes both tests; writes scores.json, permuted.png and uniform.png.

        Returns:
          `accuracy` of the model, of the `constant` answer and with `uniform` weights
          by layers; for `permuted` weights by layers the `distance`, the mean over
          texts, and its rank `correlation` with the `largest` weights.

        Raises:
          ValueError: for a missing field, and a model that is no such classifier.
        """
        model, texts, labels = self.read()
        depth = model.config.num_hidden_layers
        sets = {f"layer_{i}": np.arange(depth) == i for i in range(depth)}
        sets["all"] = np.ones(depth, bool)
        nothing = np.zeros(depth, bool)
        before, peaks = predict(model, texts, "uniform", nothing)
        counts = np.bincount(labels)
        scores: dict[str, Any] = {
            "accuracy": metrics.accuracy(labels, before.argmax(1)),
            "constant": float(counts.max() / len(labels)),
            "uniform": {},
            "permuted": {},
        }
        distances = {}
        for name, layers in sets.items():
            after, _ = predict(model, texts, "uniform", layers)
            scores["uniform"][name] = metrics.accuracy(labels, after.argmax(1))
            distances[name] = np.median(
                [
                    total_variation(
                        before, predict(model, texts, "permuted", layers, seed)[0]
                    )
                    for seed in range(self.seed, self.seed + self.permutations)
                ],
                axis=0,
            )
            peak = peaks[layers].mean(0)
            scores["permuted"][name] = {
                "distance": float(distances[name].mean()),
                "largest": float(peak.mean()),
                "correlation": metrics.spearman(peak, distances[name]),
            }
            print(format_row(name, scores), flush=True)
        workdir.mkdir(parents=True, exist_ok=True)
        (workdir / "scores.json").write_text(json.dumps(scores, indent=2) + "\n")
        draw_permuted(peaks, sets, distances, workdir / "permuted.png")
        draw_uniform(scores, workdir / "uniform.png")
        return scores

    def read(self) -> tuple[Model, list[str], np.ndarray]:
        """The model, the texts, and the number of each text's class."""
        for name in ("model", "data"):
            if not getattr(self, name):
                raise ValueError(f"{name} is missing; set it with --config.{name}")
        if self.permutations < 1:
            raise ValueError(f"permutations={self.permutations} is below 1; raise it")
        model = bert_jax.load(self.model)
        is_classifier = isinstance(model.head, SequenceClassifier) and model.labels
        if not is_classifier or not isinstance(model.config, BertConfig):
            raise ValueError(
                f"{self.model} is no classifier of the family of BERT; train one with "
                "configs/glue.py"
            )
        table = tables.read(self.data, tables.Columns(self.text, None, self.label))
        labels = np.array(tables.classes(table, model.labels))
        count = self.count or len(table)
        return model, table.texts[:count], labels[:count]


def predict(
    model: Model, texts: list[str], kind: str, layers: np.ndarray, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities `[N, C]` of texts, and the largest weights `[layers, N]`."""
    parts = [
        (rows, outputs(model.head, kind, model.params, batch, layers, key))
        for rows, batch, key in batches(model, texts, seed)
    ]
    order = np.argsort(np.concatenate([rows for rows, _ in parts]))
    probabilities = np.concatenate([x[: len(rows)] for rows, (x, _) in parts])
    peaks = np.concatenate([x[:, : len(rows)] for rows, (_, x) in parts], axis=1)
    return probabilities[order], peaks[:, order]


def batches(
    model: Model, texts: list[str], seed: int
) -> Iterator[tuple[np.ndarray, dict[str, np.ndarray], jax.Array]]:
    """Numbers of texts of similar length, their arrays, and a key.

    The last batch repeats some rows.
    """
    arrays = model.tokenizer(texts, max_length=model.max_length)
    lengths = arrays["attention_mask"].sum(1)
    order = np.argsort(lengths, kind="stable")
    keys = jax.random.split(jax.random.key(seed), -(-len(texts) // BATCH_SIZE))
    for number, key in enumerate(keys):
        rows = order[number * BATCH_SIZE : (number + 1) * BATCH_SIZE]
        width = -(-lengths[rows].max() // STEP) * STEP
        full = np.resize(rows, BATCH_SIZE)
        yield rows, {name: x[full, :width] for name, x in arrays.items()}, key


def total_variation(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Half the sum of differences of probabilities `[N, C]`: `[N]`, from 0 to 1."""
    return np.abs(one - other).sum(1) / 2


def format_row(name: str, scores: Mapping[str, Any]) -> str:
    """The results of one set of layers as a line."""
    row = scores["permuted"][name]
    return (
        f"{name:9} uniform: accuracy {scores['uniform'][name]:.4f} (unchanged "
        f"{scores['accuracy']:.4f})  permuted: distance {row['distance']:.4f}, "
        f"correlation with the largest weight {row['correlation']:+.3f}"
    )


def draw_permuted(
    peaks: np.ndarray,
    sets: Mapping[str, np.ndarray],
    distances: Mapping[str, np.ndarray],
    path: Path,
) -> None:
    """Draws a panel for each set of layers: distances against largest weights."""
    figure = Figure(figsize=(2.6 * len(sets), 2.8), layout="constrained")
    panels = figure.subplots(1, len(sets), sharey=True, squeeze=False)[0]
    for axes, (name, layers) in zip(panels, sets.items(), strict=True):
        axes.scatter(peaks[layers].mean(0), distances[name], s=5, alpha=0.4, lw=0)
        axes.set(title=name.replace("_", " "), xlabel="largest weight", ylim=(0, 1))
    panels[0].set_ylabel("total variation distance")
    figure.savefig(path, dpi=150)


def draw_uniform(scores: Mapping[str, Any], path: Path) -> None:
    """Draws accuracy with uniform weights, as bars by layers."""
    names = list(scores["uniform"])
    figure = Figure(figsize=(1.2 + 0.6 * len(names), 3), layout="constrained")
    axes = figure.subplots()
    axes.bar([x.replace("layer_", "") for x in names], scores["uniform"].values())
    axes.axhline(scores["accuracy"], color="black", lw=1, label="unchanged")
    axes.axhline(scores["constant"], color="gray", ls="--", label="constant answer")
    axes.set(xlabel="layers with uniform weights", ylabel="accuracy", ylim=(0, 1))
    axes.legend(frameon=False, fontsize=8, loc="lower right")
    figure.savefig(path, dpi=150)


@dataclasses.dataclass
class UniformTraining:
    """A classifier that is trained, and used, with uniform weights in all layers.

    The saved model has no trace of this: any other program gives it attention. Its
    scores on held-out rows are those of scores.json.

    Attributes:
      init_from: the model to start from, of the family of BERT.
      train, dev: labelled files, see `bert_jax.finetune`.
      epochs, learning_rate, max_length, seed: see `bert_jax.finetune`.
    """

    init_from: str | None = None
    train: str | None = None
    dev: str | None = None
    epochs: float = 3.0
    learning_rate: float = 5e-5
    max_length: int = 128
    seed: int = 0

    def run(self, workdir: Path) -> Model:
        """Trains in `workdir`, and returns the model."""
        for name in ("init_from", "train", "dev"):
            if not getattr(self, name):
                raise ValueError(f"{name} is missing; set it with --config.{name}")
        model = bert_jax.load(self.init_from)
        if not isinstance(model.config, BertConfig):
            raise ValueError(f"{self.init_from} is not of the family of BERT")

        def change(old: jax.Array, seen: jax.Array, layer: int) -> jax.Array:
            return weights.uniform(old, seen)

        with nn.intercept_methods(weights.intercept(change)):
            return bert_jax.finetune(
                self.init_from,
                "classify",
                train=self.train,
                dev=self.dev,
                epochs=self.epochs,
                learning_rate=self.learning_rate,
                max_length=self.max_length,
                seed=self.seed,
                workdir=workdir,
            )
