"""Using training without the extra `train` is one sentence that names it."""

import importlib.util
import sys

import numpy as np
import pytest

import bert_jax
from bert_jax import cli
from bert_jax.data import corpus, optional, pipeline, tables, tfds_files, workers
from bert_jax.data.ragged import RaggedRows

EXTRA = "pip install 'bert_jax.train.'"


@pytest.fixture
def light(monkeypatch):
    """An environment without the packages of the extra `train`."""
    names = "tensorflow", "tensorflow_datasets", "array_record", "loky"
    for name in list(sys.modules):
        if name.partition(".")[0] in names:
            monkeypatch.delitem(sys.modules, name)
    for name in names:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, find=importlib.util.find_spec: (
            None if name in names else find(name)
        ),
    )


def rows():
    ids = {"input_ids": [np.array([1, 2])] * 4}
    return RaggedRows(ids, {"input_ids": 0}, {}, max_length=8)


@pytest.mark.parametrize(
    "use, package",
    [
        (lambda: next(pipeline.batches(rows(), batch_size=2, seed=0)), "tensorflow"),
        (lambda: tfds_files.local_file("tfds:a:train"), "tensorflow"),
        (lambda: next(corpus.read([], "tfds:a")), "tensorflow"),
        (lambda: list(workers.run(len, ["a"], 2)), "loky"),
        (lambda: optional.check_installed("train.py"), "tensorflow"),
        (lambda: bert_jax.finetune("m", "tag", train="a", dev="b"), "tensorflow"),
        (lambda: bert_jax.pretrain("m", "a.txt"), "tensorflow"),
    ],
)
def test_a_missing_package_is_one_sentence_that_names_the_extra(light, use, package):
    with pytest.raises(ValueError, match=f"needs the package {package}, .*{EXTRA}"):
        use()
    with pytest.raises(ImportError, match=EXTRA) as error:
        use()
    assert len(str(error.value).splitlines()) == 1


def test_a_command_without_the_extra_ends_with_one_line(light, tmp_path, capsys):
    text = tmp_path / "text.txt"
    text.write_text("Tea is hot.\nIce is cold.\n\n" * 9)
    out = str(tmp_path / "rows")
    with pytest.raises(SystemExit) as ended:
        cli.main(["prepare", str(text), "--out", out, "--vocab-size", "34"])
    assert ended.value.code == 2
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last.startswith("bert-jax: preparing rows needs") and "train" in last


def test_labelled_files_and_raw_text_are_read_without_the_extra(light, tmp_path):
    file = tmp_path / "a.tsv"
    file.write_text("text\tlabel\na b\tx\nc d\ty\n")
    assert tables.read(file).texts == ["a b", "c d"]
    text = tmp_path / "text.txt"
    text.write_text("Tea is hot.\n\nIce is cold.\n")
    assert len(list(corpus.read([str(text)], "lines"))) == 2


def test_an_error_inside_a_package_is_not_called_missing(tmp_path, monkeypatch):
    (tmp_path / "broken_package.py").write_text("import nothing_of_this_name")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="nothing_of_this_name"):
        optional.require("broken_package", "a test")


def test_a_notebook_shows_the_sentence_alone(light):
    with pytest.raises(optional.MissingExtraError) as error:
        bert_jax.finetune("m", "tag", train="a", dev="b")
    (line,) = error.value._render_traceback_()
    assert line == f"MissingExtraError: {error.value}"


@pytest.mark.parametrize("name", ["finetune tag --train a --dev b", "pretrain a.txt"])
def test_commands_that_train_say_the_same_sentence(light, capsys, name):
    with pytest.raises(SystemExit) as ended:
        cli.main([*name.split(), "--model", "m", "--workdir", "run"])
    shown = capsys.readouterr().err
    assert ended.value.code == 2 and shown.count("\n") == 1
    assert "needs the package tensorflow, which is not installed; activate" in shown
