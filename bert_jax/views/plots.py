"""Plots of a run, in its work directory."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax import files, metrics

INK, SOFT, LINE, POINTS = "#22272e", "#8b949e", "#3b6ea8", "#c8553d"
# Fields of metrics.jsonl that are not scores.
NO_SCORES = {
    *("step", "split", "learning_rate", "grad_norm", "tokens_per_second", "seconds"),
    *("mfu", "input_wait", "skipped_steps"),
}
# The panels beside each other.
ACROSS = 4
# The largest number of classes with counts; more have only colours.
WIDEST = 24
# Characters of a class that fit below a column.
SHORT = 9

# A line of metrics.jsonl, with scores from 0 to 1.
Entry = dict[str, Any]


def curves(workdir: Path) -> None:
    """Draws `workdir/curves.png` from metrics.jsonl: loss, and each score."""
    train, held_out = read_metrics(workdir / "metrics.jsonl")
    last = max((line["step"] for line in (*train, *held_out)), default=1)
    names = scores_of(train, held_out)
    across = min(ACROSS, len(names))
    down = math.ceil(len(names) / across)
    figure = _figure(3.4 * across, 2.9 * down)
    panels = figure.subplots(down, across, squeeze=False).ravel()
    for axes, name in zip(panels, names, strict=False):
        _curve(axes, points(train, name), color=LINE, label="train")
        _curve(axes, points(held_out, name), color=POINTS, label="held out", marker="o")
        if (constant := baseline(held_out, name)) is not None:
            look = {"ls": "--", "lw": 1.2, "color": SOFT}
            axes.axhline(constant, **look, label="constant answer")
        _plain(axes, name.replace("_", " "), "step")
        axes.set_xlim(0, last)
        axes.xaxis.get_major_locator().set_params(integer=True)
        if axes.lines:
            axes.set_ylim(*limits(name, [line.get_ydata() for line in axes.lines]))
            axes.legend(frameon=False, fontsize=8, labelcolor=INK)
    for axes in panels[len(names) :]:
        axes.set_visible(False)
    _save(figure, workdir / "curves.png")


def read_metrics(path: Path) -> tuple[list[Entry], list[Entry]]:
    """The lines of metrics.jsonl for training and for the held-out rows.

    A last window of training that is shorter than half of the one before is averaged
    with it, each by its steps: a mean over two steps would be a kink.
    """
    with path.open(encoding="utf-8") as file:
        lines = [metrics.as_shares(_finite(json.loads(line))) for line in file]
    train, held_out = (
        [line for line in lines if line["split"] == split]
        for split in ("train", "eval")
    )
    steps = [0, *(line["step"] for line in train)]
    windows = np.diff(steps)
    if len(train) > 1 and 2 * windows[-1] < windows[-2]:
        last, before = train.pop(), train.pop()
        train.append(_joined(before, last, windows[-2] / windows[-2:].sum()))
    return train, held_out


def _finite(entry: Entry) -> Entry:
    return {name: value for name, value in entry.items() if value is not None}


def _joined(first: Entry, second: Entry, share: float) -> Entry:
    """The second entry, with the share of the first in what both have."""
    same = second.keys() & first.keys() - {"step", "split"}
    return second | {k: share * first[k] + (1 - share) * second[k] for k in same}


def scores_of(train: Sequence[Entry], held_out: Sequence[Entry]) -> list[str]:
    """Names of the panels: "loss", its terms if there are several, and all scores."""
    fields = {k: None for line in (*held_out[-1:], *train[-1:]) for k in line}
    baselines = {metrics.baseline_name(name) for name in fields}
    no_shares = ("total", "_thresh")
    lines = [*train, *held_out]

    def is_panel(name: str) -> bool:
        is_score = name not in {*NO_SCORES, *baselines} and not name.endswith(no_shares)
        return is_score and not _is_loss(lines, name)

    return ["loss", *filter(is_panel, fields)]


def _is_loss(lines: Sequence[Entry], name: str) -> bool:
    """True for `loss`, and for its only term, which has the same values."""
    return name.endswith("loss") and all(
        x[name] == x.get("loss") for x in lines if name in x
    )


def baseline(held_out: Sequence[Entry], name: str) -> float | None:
    """The score of the best constant answer, if the run has it."""
    last = held_out[-1] if held_out else {}
    names = [k for k in last if _is_loss(held_out, k)] if name == "loss" else [name]
    known = [last.get(metrics.baseline_name(x)) for x in names]
    return next((x for x in known if x is not None), None)


def points(lines: Sequence[Entry], name: str) -> np.ndarray:
    """Steps and values of a field, `[2, N]`, where the lines have it."""
    known = [(x["step"], x[name]) for x in lines if name in x]
    return np.array(known, float).reshape(-1, 2).T


def limits(name: str, values: Sequence[Sequence[float]]) -> tuple[float, float]:
    """The ends of an axis: within what a score can be, and never too near each other.

    >>> limits("accuracy", [[1.0, 1.0]])
    (0.95, 1.0)
    >>> limits("loss", [[2.0]])
    (1.9, 2.1)
    """
    known = np.concatenate([np.asarray(x, float) for x in values])
    low, high = float(known.min()), float(known.max())
    is_share = not name.endswith("loss") and -1 <= low and high <= 1
    least = 0.1 * (1.0 if is_share else abs(high) or 1.0)
    room = max(0.06 * (high - low), (least - (high - low)) / 2)
    floor = 0.0 if low >= 0 else -1.0 if is_share else -math.inf
    return max(low - room, floor), min(high + room, 1.0 if is_share else math.inf)


def _curve(axes: Any, curve: np.ndarray, **look: Any) -> None:
    steps, values = curve
    if not len(steps):
        return
    # A short run, and one evaluation, are not seen without points.
    look = {"marker": "." if len(steps) < 12 else None, **look}
    axes.plot(steps, values, ms=4, lw=1.4, clip_on=False, **look)


def confusion(
    labels: np.ndarray, predictions: np.ndarray, names: Sequence[str], path: Path
) -> None:
    """Draws the number of predictions `[N]` of each class for each label `[N]`.

    Rows are labels. Colours, and the second number of a cell, are shares of a row.
    """
    counts = np.zeros((len(names), len(names)), int)
    np.add.at(counts, (labels, predictions), 1)
    share = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    size = 2.0 + 0.7 * min(len(names), WIDEST)
    figure = _figure(size + 1.2, size)
    axes = figure.subplots()
    picture = axes.imshow(share, cmap="Blues", vmin=0, vmax=1)
    for (row, column), count in np.ndenumerate(counts if len(names) <= WIDEST else []):
        look = {
            "color": "white" if share[row, column] > 0.5 else INK,
            "ha": "center",
            "va": "center",
        }
        text = f"{count:,}\n{share[row, column]:.0%}" if count else "0"
        axes.text(column, row, text, fontsize=8, **look)
    is_long = len(names) > 2 * SHORT or max(map(len, names), default=0) > SHORT
    axes.set_xticks(range(len(names)), names, rotation=90 if is_long else 0)
    axes.set_yticks(range(len(names)), names)
    _plain(axes, "", "predicted")
    axes.set_ylabel("label", color=INK)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    bar = figure.colorbar(picture, ax=axes, format="{x:.0%}", shrink=0.8)
    bar.set_label("share of the rows of a label", color=INK, fontsize=8)
    bar.ax.tick_params(colors=INK, labelsize=8, length=0)
    bar.outline.set_visible(False)
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
    files.make_directory(path.parent)
    with files.new_file(path, "wb") as file:
        figure.savefig(file, format="png", dpi=150)
