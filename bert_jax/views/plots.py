"""Plots of a run, in its work directory."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

INK, SOFT, LINE, POINTS = "#22272e", "#8b949e", "#3b6ea8", "#c8553d"
# Fields of metrics.jsonl that are not scores.
NO_SCORES = {
    *("step", "split", "learning_rate", "grad_norm", "tokens_per_second", "seconds"),
    *("mfu", "loss"),
}
# The largest number of axes; metrics.jsonl has all scores.
MOST = 4
# The largest number of classes with counts; more have only colours.
WIDEST = 24


def curves(workdir: Path) -> None:
    """Draws `workdir/curves.png` from metrics.jsonl: loss, then the scores."""
    with (workdir / "metrics.jsonl").open(encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    held_out = [line for line in lines if line["split"] == "eval"]
    train = [line for line in lines if line["split"] == "train"]
    scores = [
        k
        for k in (held_out[-1] if held_out else {})
        if k not in NO_SCORES and not k.startswith("constant_")
    ]
    names = ["loss", *scores][:MOST]
    figure = _figure(3.4 * len(names), 2.9)
    for axes, name in zip(
        figure.subplots(1, len(names), squeeze=False)[0], names, strict=True
    ):
        for rows, style in (
            (train, {"color": LINE, "label": "train", "lw": 1.4}),
            (
                held_out,
                {"color": POINTS, "label": "held out", "lw": 1.4, "marker": "o"},
            ),
        ):
            points = [(x["step"], x[name]) for x in rows if x.get(name) is not None]
            if points:
                axes.plot(*np.transpose(points), ms=4, **style)
        _plain(axes, name.replace("_", " "), "step")
        axes.xaxis.get_major_locator().set_params(integer=True)
        if axes.lines:
            axes.legend(frameon=False, fontsize=8, labelcolor=INK)
    _save(figure, workdir / "curves.png")


def confusion(
    labels: np.ndarray, predictions: np.ndarray, names: Sequence[str], path: Path
) -> None:
    """Draws the number of predictions `[N]` of each class for each label `[N]`.

    Rows are labels, and colours are shares of a row.
    """
    counts = np.zeros((len(names), len(names)), int)
    np.add.at(counts, (labels, predictions), 1)
    share = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    size = 1.8 + 0.62 * min(len(names), WIDEST)
    figure = _figure(size + 0.4, size)
    axes = figure.subplots()
    axes.imshow(share, cmap="Blues", vmin=0, vmax=1)
    for (row, column), count in np.ndenumerate(counts if len(names) <= WIDEST else []):
        ink = "white" if share[row, column] > 0.5 else INK
        axes.text(column, row, f"{count:,}", ha="center", va="center", color=ink)
    axes.set_xticks(range(len(names)), names, rotation=30, ha="right")
    axes.set_yticks(range(len(names)), names)
    _plain(axes, "", "predicted")
    axes.set_ylabel("label", color=INK)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    _save(figure, path)


def _figure(width: float, height: float) -> Any:
    """An empty figure of a size in inches; it needs no screen."""
    from matplotlib.figure import Figure  # takes a third of a second to import

    return Figure(figsize=(width, height), layout="constrained")


def _plain(axes, title, below):
    axes.set_title(title, fontsize=10, loc="left", color=INK)
    axes.set_xlabel(below, color=INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(SOFT)
    axes.tick_params(colors=INK, labelsize=8)


def _save(figure, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
