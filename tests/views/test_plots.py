"""Laws of the plots of a run: what is drawn from which numbers."""

import json

import numpy as np
import pytest

from bert_jax.views import plots

DRAWS_CURVES = True  # see conftest.py


@pytest.fixture
def drawn(monkeypatch):
    """The figures that are drawn, instead of files."""
    figures = []
    monkeypatch.setattr(plots, "_save", lambda figure, path: figures.append(figure))
    return figures


def write(workdir, train, held_out):
    """Writes metrics.jsonl from fields by step."""
    splits = (("train", train), ("eval", held_out))
    lines = [
        {"step": step, "split": split, **fields}
        for split, entries in splits
        for step, fields in entries.items()
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (workdir / "metrics.jsonl").write_text(text)


def panels(figure):
    """Axes by title, without those that are hidden."""
    return {axes.get_title("left"): axes for axes in figure.axes if axes.get_visible()}


def curve(axes, label):
    (line,) = (line for line in axes.lines if line.get_label() == label)
    return np.transpose(line.get_data()).tolist()


def test_a_short_last_window_is_averaged_with_the_one_before(tmp_path, drawn):
    losses = {20: 4.0, 40: 3.0, 60: 2.0, 62: 9.0}
    write(tmp_path, {step: {"loss": x} for step, x in losses.items()}, {})
    plots.curves(tmp_path)
    last = pytest.approx((20 * 2.0 + 2 * 9.0) / 22)
    assert curve(panels(drawn[0])["loss"], "train") == [
        [20, 4.0],
        [40, 3.0],
        [62, last],
    ]


def test_each_score_has_one_panel_with_its_baseline_as_a_line(tmp_path, drawn):
    train = {"loss": 5.0, "mlm_loss": 5.0, "mlm_accuracy": 0.1, "learning_rate": 1e-4}
    held_out = train | {"unigram_loss": 6.5, "unigram_accuracy": 0.08}
    del held_out["learning_rate"]
    write(tmp_path, {10: train, 20: train}, {20: held_out})
    plots.curves(tmp_path)
    axes = panels(drawn[0])
    assert list(axes) == ["loss", "mlm accuracy"]
    for title, value in (("loss", 6.5), ("mlm accuracy", 0.08)):
        (line,) = (x for x in axes[title].lines if x.get_label() == "constant answer")
        assert set(line.get_ydata()) == {value}


def test_all_scores_are_drawn_and_no_counts(tmp_path, drawn):
    names = ["precision", "recall", "f1", "nsp_accuracy", "accuracy", "matthews"]
    held_out = dict.fromkeys(names, 0.5) | {"loss": 1.0, "total": 80.0}
    held_out |= {name: 0.1 * n for n, name in enumerate(names)}
    held_out["f1"] = held_out["recall"]  # by chance
    write(tmp_path, {10: {"loss": 1.5, "grad_norm": 3.0}}, {10: held_out})
    plots.curves(tmp_path)
    titles = ["loss", *(name.replace("_", " ") for name in names)]
    assert list(panels(drawn[0])) == titles


@pytest.mark.parametrize("scores, ticks", [(100.0, 1.0), (0.0, 0.0), (57.0, 0.57)])
def test_a_constant_score_has_an_axis_within_0_and_1(tmp_path, drawn, scores, ticks):
    held_out = {"loss": 1.0, "exact_match": scores, "f1": scores / 2}
    write(tmp_path, {5: {"loss": 1.0}}, {5: held_out, 10: held_out})
    plots.curves(tmp_path)
    axes = panels(drawn[0])["exact match"]
    low, high = axes.get_ylim()
    assert 0 <= low <= ticks <= high <= 1 and 0.05 <= high - low <= 0.2
    assert curve(axes, "held out") == [[5, ticks], [10, ticks]]


def test_a_score_that_is_no_number_leaves_a_gap(tmp_path, drawn):
    write(
        tmp_path,
        {},
        {5: {"loss": 1.0, "pearson": None}, 9: {"loss": 2.0, "pearson": -0.5}},
    )
    plots.curves(tmp_path)
    assert curve(panels(drawn[0])["pearson"], "held out") == [[9, -0.5]]


def test_a_confusion_has_counts_shares_a_scale_and_upright_labels(tmp_path, drawn):
    labels, predictions = np.array([0, 0, 0, 0, 1]), np.array([0, 0, 0, 1, 1])
    plots.confusion(labels, predictions, ["0", "1"], tmp_path / "confusion.png")
    cells, bar = drawn[0].axes
    assert [text.get_text() for text in cells.texts] == [
        "3\n75%",
        "1\n25%",
        "0",
        "1\n100%",
    ]
    assert {label.get_rotation() for label in cells.get_xticklabels()} == {0}
    assert bar.get_ylabel() == "share of the rows of a label"
    names = ["entailment", "contradiction"]
    plots.confusion(labels, predictions, names, tmp_path / "confusion.png")
    labels = drawn[1].axes[0].get_xticklabels()
    assert {label.get_rotation() for label in labels} == {90}
