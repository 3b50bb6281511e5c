"""Laws of fine-tuning runs: seeds, the best step, files, pictures."""

import builtins
import collections
import dataclasses
import io
import json
import re
import tempfile
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import TINY, published, written

import bert_jax
from bert_jax import pretrained
from bert_jax.api import TASKS, finetune, warn_of_no_gain
from bert_jax.pretrained import weights
from bert_jax.tasks.classification import ClassificationConfig
from bert_jax.training import loop, runs
from bert_jax.training.config import TrainConfig
from bert_jax.training.optimizers import OptimizerConfig
from bert_jax.training.resume import LoopState

DRAWS_CURVES = True  # see conftest.py


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    return published(tmp_path_factory.mktemp("start"))


def config(start, folder, **changes):
    """A run that learns in a few steps."""
    files = {"train": folder / "train.tsv", "dev": folder / "dev.tsv"}
    for seed, file in enumerate(files.values()):
        written(file, (96, 29)[seed], seed)
    task = {k: str(x) for k, x in files.items()} | changes.pop("task", {})
    fields = dict(
        encoder=None,
        task=ClassificationConfig(max_length=16, **task),
        optimizer=OptimizerConfig(
            name="adamw", learning_rate=1e-2, schedule="linear", weight_decay=0.0
        ),
        batch_size=16,
        init_from=str(start),
        keep=1,
    )
    return TrainConfig(**fields | changes)


def lines(workdir, split):
    logged = [json.loads(x) for x in (workdir / "metrics.jsonl").open()]
    return [x for x in logged if x["split"] == split]


@pytest.fixture(scope="module")
def tuned(start, tmp_path_factory):
    """A run whose rate becomes far too high, so that the best step is not the last."""
    folder = tmp_path_factory.mktemp("run")
    written(folder / "hidden.tsv", 12, 5)
    rows = [x.split("\t")[0] for x in (folder / "hidden.tsv").read_text().splitlines()]
    (folder / "hidden.tsv").write_text("sentence\n" + "\n".join(rows) + "\n")
    written(folder / "more.tsv", 11, 6)
    wild = OptimizerConfig(learning_rate=0.3, schedule="linear", clip_norm=0.0)
    settings = config(
        start,
        folder,
        optimizer=wild,
        export="best",
        keep_checkpoints=True,
        task={
            "test": (str(folder / "hidden.tsv"), str(folder / "more.tsv")),
            "epochs": 4.0,
            "warmup": 0.9,
        },
    )
    return bert_jax.train(settings, folder / "run"), folder, settings


def test_the_model_is_that_of_the_best_step_in_scores_json(tuned):
    model, folder, _ = tuned
    written = json.loads((folder / "run/scores.json").read_text())
    accuracies = {x["step"]: x["accuracy"] for x in lines(folder / "run", "eval")}
    best = max(accuracies, key=accuracies.get)
    assert best != max(accuracies), (
        "the run must get worse for this test to say anything"
    )
    assert written["step"] == best
    assert written["scores"]["eval"]["accuracy"] == pytest.approx(accuracies[best])
    step = pretrained.load(folder / "run/checkpoints" / str(best))
    for ours, theirs in zip(
        jax.tree.leaves(model.params), jax.tree.leaves(step.params), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)


def test_prediction_files_have_labels_only_if_the_input_has(tuned):
    model, folder, _ = tuned
    names = {x.name for x in (folder / "run/predictions").iterdir()}
    assert names == {"eval.tsv", "hidden.tsv", "more.tsv"}
    head, *rows = (folder / "run/predictions/hidden.tsv").read_text().splitlines()
    texts = (folder / "hidden.tsv").read_text().splitlines()[1:]
    assert head == "index\tprediction"
    expected = [f"{i}\t{x[0].name}" for i, x in enumerate(model.classify(texts))]
    assert rows == expected
    head, first, *_ = (folder / "run/predictions/more.tsv").read_text().splitlines()
    assert head == "index\tprediction\tlabel" and first.endswith("no")


def test_files_with_labels_are_scored_and_others_are_not(tuned):
    _, folder, _ = tuned
    scores = json.loads((folder / "run/scores.json").read_text())["scores"]
    table = (folder / "run/predictions/more.tsv").read_text().splitlines()[1:]
    right = np.mean([x.split("\t")[1] == x.split("\t")[2] for x in table])
    assert scores["more"]["accuracy"] == pytest.approx(right)
    assert scores["hidden"] == {}


def test_curves_and_confusions_are_drawn(tuned):
    _, folder, _ = tuned
    for name in ("curves.png", "confusion.png"):
        content = (folder / "run" / name).read_bytes()
        assert content.startswith(b"\x89PNG") and len(content) > 5_000


def test_the_same_command_again_changes_nothing(tuned):
    model, folder, settings = tuned
    before = (folder / "run/metrics.jsonl").read_text()
    scores = (folder / "run/scores.json").read_text()
    again = bert_jax.train(settings, folder / "run")
    assert (folder / "run/metrics.jsonl").read_text() == before
    assert (folder / "run/scores.json").read_text() == scores
    assert dict(again.classify("a q")) == dict(model.classify("a q"))


def test_patience_counts_evaluations_that_are_no_better():
    two, three, never = (
        TrainConfig(encoder=None, task=None, patience=limit) for limit in (2, 3, 0)
    )
    loop = LoopState()
    for score, ended in ((0.5, 0), (0.7, 0), (0.7, 0), (float("nan"), 1)):
        loop.add_score(score)
        assert loop.ended(two) == bool(ended)
    resumed = LoopState.from_json(json.loads(json.dumps(loop.to_json())))
    assert not resumed.ended(three)
    resumed.add_score(0.1)
    assert resumed.ended(three)
    for _ in range(9):
        resumed.add_score(0.0)
    assert not resumed.ended(never)


def test_frozen_parameters_stay_as_they_were(start, tmp_path):
    frozen = OptimizerConfig(
        name="adamw",
        learning_rate=1e-2,
        schedule="linear",
        frozen=("encoder",),
    )
    settings = config(start, tmp_path, optimizer=frozen, task={"epochs": 1.0})
    model = bert_jax.train(settings, tmp_path / "run")
    before = pretrained.load(start).params
    for ours, theirs in zip(
        jax.tree.leaves(model.params["encoder"]),
        jax.tree.leaves(before["encoder"]),
        strict=True,
    ):
        np.testing.assert_array_equal(ours, theirs)
    pooler = model.params["pooler"]["kernel"]
    assert np.abs(pooler - before["pooler"]["kernel"]).max() > 1e-4
    wrong = config(start, tmp_path, optimizer=OptimizerConfig(frozen=("layer_7",)))
    with pytest.raises(ValueError, match="optimizer.frozen has 'layer_7'"):
        bert_jax.train(wrong, tmp_path / "wrong")


def test_several_seeds_give_means_deviations_and_the_best_model(
    start, tmp_path, capsys
):
    settings = config(start, tmp_path, seeds=2, seed=3, task={"epochs": 2.0})
    model = bert_jax.train(settings, tmp_path / "run")
    assert capsys.readouterr().out.count("starts with random values") == 1
    for seed in (3, 4):
        events = (tmp_path / f"run/seed_{seed}/tensorboard/eval").iterdir()
        png = (tmp_path / f"run/seed_{seed}/confusion.png").read_bytes()
        assert any(png in file.read_bytes() for file in events)
    written = json.loads((tmp_path / "run/scores.json").read_text())
    alone = [
        json.loads((tmp_path / f"run/seed_{seed}/scores.json").read_text())
        for seed in (3, 4)
    ]
    values = [x["scores"]["eval"]["loss"] for x in alone]
    losses = written["scores"]["eval"]["loss"]
    assert written["seeds"] == [3, 4] and losses["values"] == values
    assert losses["mean"] == pytest.approx(np.mean(values))
    assert losses["deviation"] == pytest.approx(abs(values[0] - values[1]) / 2**0.5)
    best = max(alone, key=lambda x: x["scores"]["eval"]["accuracy"])["seed"]
    assert written["best_seed"] == best
    saved = bert_jax.load(tmp_path / "run/model")
    assert dict(saved.classify("a q")) == pytest.approx(dict(model.classify("a q")))


def test_deviations_are_those_of_a_sample():
    spread = runs.spread_of([{"eval": {"f1": x}} for x in (1.0, 2.0, 4.0)])["eval"][
        "f1"
    ]
    assert spread["mean"] == pytest.approx(7 / 3)
    assert spread["deviation"] == pytest.approx(np.std([1, 2, 4], ddof=1))
    assert "2.3333 +- 1.5275" in runs.table({"eval": {"f1": spread}})


@pytest.mark.parametrize("seeds", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_call_without_workdir_names_no_directory(start, tmp_path, capsys, seeds):
    files = [written(tmp_path / f"{x}.tsv", 17, x) for x in range(2)]
    how = dict(train=files[0], dev=files[1], epochs=0.1, max_length=16, seeds=seeds)
    finetune(start, "classify", **how)
    output = capsys.readouterr().out
    assert "held out: '" in output
    assert tempfile.gettempdir() not in output and "Next:" not in output
    finetune(start, "classify", **how, workdir=tmp_path / "run")
    output = capsys.readouterr().out
    assert f"{tmp_path}/run" in output and "Next:" in output


@pytest.mark.parametrize("task", TASKS)
def test_a_task_refuses_fields_that_it_does_not_have(task):
    listed = f"'{task}' has no 'qq'; it has learning_rate, batch_size, max_length, epo"
    with pytest.raises(ValueError, match=listed):
        finetune("nowhere", task, train="a", dev="b", qq="x")
    with pytest.raises(ValueError, match="has no 'sead'; did you mean seed"):
        finetune("nowhere", task, train="a", dev="b", sead=1)
    with pytest.raises(ValueError, match="'lr'; its name here is learning_rate"):
        finetune("nowhere", task, train="a", dev="b", lr=1e-4)


def test_a_call_that_is_refused_leaves_nothing(start, tmp_path):
    model, file = bert_jax.load(start), written(tmp_path / "train.tsv", 8, 0)
    home = tmp_path / "run"
    for fields in ({"metrics": ("bleu",)}, {"max_length": 900}):
        with pytest.raises(ValueError, match="metrics|max_length"):
            finetune(model, "classify", train=file, dev=file, workdir=home, **fields)
        assert not home.exists()
    (home / "start").mkdir(parents=True)
    (home / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="is not empty and no run made it"):
        finetune(model, "classify", train=file, dev=file, workdir=home)
    assert (home / "start").exists()


def test_two_files_with_the_same_name_are_refused(start, tmp_path):
    settings = config(start, tmp_path, task={"test": ("a/test.tsv", "b/test.tsv")})
    with pytest.raises(ValueError, match="a file named 'test', which another split"):
        bert_jax.train(settings, tmp_path / "run")


def test_a_task_without_a_start_has_no_parameters_to_take(start, tmp_path):
    run = config(start, tmp_path)
    run = run.task.resolve(run)
    task = run.task.prepare(tmp_path / "run", run.encoder, 0)
    task = dataclasses.replace(task, start=None)
    with pytest.raises(ValueError, match="no checkpoint to start from; set init_from"):
        task.pretrained_params(str(start))


def test_the_tiny_encoder_is_the_one_that_was_published(start):
    assert pretrained.load(start).head.encoder.config == TINY


def test_prediction_files_have_the_names_and_labels_that_glue_needs(start, tmp_path):
    (tmp_path / "train.tsv").write_text("sentence\tscore\na b\t0.5\nc d\t4.75\n")
    (tmp_path / "test.tsv").write_text("index\tsentence\n0\ta q\n1\tb\n2\tc\n")
    task = ClassificationConfig(
        name="stsb",
        max_length=16,
        train=str(tmp_path / "train.tsv"),
        dev=str(tmp_path / "train.tsv"),
        test=(str(tmp_path / "test.tsv"),),
        init_from=str(start),
    )
    with pytest.warns(UserWarning, match="2 of the 2 rows"):
        prepared = task.prepare(tmp_path, TINY, 0)
    # Numbers beyond 0 and 5 are brought back to them.
    logits = np.array([[5.25], [3.14159], [-0.5]], np.float32)
    assert prepared.score("test", {"logits": logits}) == {}
    prepared.write_predictions(tmp_path, "test", {"logits": logits})
    assert (tmp_path / "predictions/STS-B.tsv").read_text().splitlines() == [
        "index\tprediction",
        "0\t5.000",
        "1\t3.142",
        "2\t0.000",
    ]


def test_the_start_model_and_each_file_are_read_once_for_all_seeds(
    start, tmp_path, monkeypatch
):
    written(tmp_path / "test.tsv", 7, 4)
    test = str(tmp_path / "test.tsv")
    run = config(start, tmp_path, seeds=3, task={"test": (test,), "epochs": 0.2})
    opened = collections.Counter()
    read_weights = weights.read

    def count_file(path, *args, original=open, **kwargs):
        opened[Path(path).name if isinstance(path, str | Path) else path] += 1
        return original(path, *args, **kwargs)

    def count_weights(directory):
        opened[str(directory)] += 1
        return read_weights(directory)

    # Path.open is io.open.
    monkeypatch.setattr(builtins, "open", count_file)
    monkeypatch.setattr(io, "open", count_file)
    monkeypatch.setattr(weights, "read", count_weights)
    bert_jax.train(run, tmp_path / "run")
    expected = ("train.tsv", "dev.tsv", "test.tsv", str(start))
    assert {name: opened[name] for name in expected} == dict.fromkeys(expected, 1)


@pytest.mark.parametrize(
    "best, report, warns",
    [
        ("accuracy", {"loss": 0.6, "accuracy": 0.5, "constant_accuracy": 0.5}, True),
        ("accuracy", {"loss": 0.6, "accuracy": 0.6, "constant_accuracy": 0.5}, False),
        ("pearson", {"pearson": 0.19, "constant_pearson": 0.0}, True),  # of 100 rows
        ("pearson", {"pearson": float("nan"), "constant_pearson": 0.0}, True),
        ("pearson", {"pearson": 0.21, "constant_pearson": 0.0}, False),
        ("f1", {"f1": 0.0, "constant_f1": 0.0}, True),
        ("loss", {"loss": 7.7, "mlm_loss": 7.7, "unigram_loss": 4.3}, True),
        ("loss", {"loss": 4.2, "mlm_loss": 4.2, "unigram_loss": 4.3}, False),
        ("loss", {"loss": 4.2}, False),
    ],
)
def test_a_result_no_better_than_a_constant_answer_is_said(best, report, warns):
    task = SimpleNamespace(best_metric=best, rows={"eval": range(100)})
    run = loop.Run(task, Path(), 1, {}, {"eval": report}, 0.0)
    text = warn_of_no_gain(run)
    assert ("no better than a constant answer" in text) == warns
    assert text.count("\n") == (2 if warns else 0)


@pytest.fixture(scope="module")
def finished(start, tmp_path_factory):
    """A finished run from a model in bfloat16, its model and its directory."""
    folder = tmp_path_factory.mktemp("finished")
    files = [written(folder / f"{name}.tsv", 24, x) for x, name in enumerate("ab")]
    how = dict(train=files[0], dev=files[1], epochs=1, max_length=16)
    how |= dict(batch_size=8, workdir=folder / "run")
    begin = bert_jax.load(start, dtype="bfloat16")
    return finetune(begin, "classify", **how), begin, how


def test_a_finished_run_keeps_its_model_and_no_state_of_the_optimizer(finished, capsys):
    model, begin, how = finished
    names = {x.name for x in how["workdir"].iterdir()}
    assert {"model", "scores.json", "metrics.jsonl", "predictions"} <= names
    assert not {"checkpoints", "start"} & names
    before = (how["workdir"] / "scores.json").read_text()
    again = finetune(begin, "classify", **how)
    shown = capsys.readouterr().out
    assert "this run is complete" in shown and "accuracy" in shown
    assert dict(again.classify("a q")) == dict(model.classify("a q"))
    assert (how["workdir"] / "scores.json").read_text() == before
    assert not (how["workdir"] / "start").exists()
    message = "complete:\nbatch_size: was 8, is 16(?s:.*)keep_checkpoints=True"
    with pytest.raises(ValueError, match=message):
        finetune(begin, "classify", **how | {"batch_size": 16})


def test_a_run_computes_in_the_type_of_its_model(finished):
    model, _, how = finished
    config = json.loads((how["workdir"] / "config.json").read_text())
    assert config["dtype"] == model.config.dtype == "bfloat16"


def test_a_type_to_compute_in_may_be_that_of_jax(finished):
    _, begin, how = finished
    again = finetune(begin, "classify", **how, dtype=jnp.bfloat16)  # or another run
    assert again.config.dtype == "bfloat16"
    with pytest.raises(ValueError, match="float64.* is unknown; choose one of float32"):
        bert_jax.pretrain(begin, "text.txt", dtype=np.float64)


def test_what_a_run_prints_can_be_read_and_typed(finished, capsys):
    _, begin, how = finished
    finetune(begin, "classify", **how)
    shown = capsys.readouterr().out
    assert re.search(r"\nheld out: '.*'\n +\d+%  (no|yes)\n +\d+%  (no|yes)\n", shown)
    assert "Label(" not in shown and "python -c" not in shown
    lines = shown.split("Next:\n")[1].splitlines()
    assert lines[0] == f"  model = bert_jax.load({str(how['workdir'])!r})"
    assert lines[1].startswith("  model.classify(")


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"epochs": 0}, "^epochs=0 must be above 0; num_steps=N sets a number of"),
        ({"epochs": 2, "num_steps": 9}, "epochs=2 and num_steps=9 both set the length"),
        (
            {"train": [3]},
            "^train:1: row 3: is no dictionary and no tuple; give rows suc",
        ),
        ({"batch_size": "32"}, "^batch_size='32' is a str; it must be a whole number"),
        ({"model": None}, "model is a NoneType; give a Model, a directory or a name"),
    ],
)
def test_an_argument_that_cannot_work_is_refused_by_name(fields, message):
    how = {"model": "nowhere", "task": "tag", "train": "a", "dev": "b"}
    with pytest.raises(ValueError, match=message):
        finetune(**how | fields)


def test_errors_in_rows_in_memory_name_the_argument_and_the_row(start):
    rows = [{"text": x, "label": x in "aeiou"} for x in "abcdefghijkl"]
    wrong = [*rows, {"text": "", "label": True}]
    with pytest.raises(
        ValueError, match="^train has 1 problem:\ntrain:13: column 'tex"
    ):
        finetune(start, "classify", train=wrong, dev=rows, max_length=16)


def test_the_length_follows_from_the_model_and_is_never_changed(start, tmp_path):
    files = [written(tmp_path / f"{x}.tsv", 17, x) for x in range(2)]
    how = dict(train=files[0], dev=files[1], num_steps=1, frozen="encoder")
    model = finetune(start, "classify", **how, workdir=tmp_path / "run")
    assert model.max_length == TINY.max_position_embeddings < 128
    config = json.loads((tmp_path / "run/config.json").read_text())
    assert config["num_steps"] == 1 and config["optimizer.frozen"] == ["encoder"]
    with pytest.raises(ValueError, match="^max_length=128 is not between 4 and the 20"):
        finetune(start, "classify", **how, max_length=128)


def test_no_rows_are_one_sentence():
    with pytest.raises(ValueError, match="^train has no rows; give at least one$"):
        finetune("DIR", "classify", train=[], dev=[("a", "yes")])
