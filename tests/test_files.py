"""Laws of paths that a user gives, and of files that are written."""

import os
import resource
from pathlib import Path

import pytest
from tiny import LETTERS, TINY, made, wordpiece

import bert_jax
from bert_jax import cli, files, pretrained, tokenizers
from bert_jax.data import corpus, labelled_files, preparation, prepared_rows
from bert_jax.data.records import RowConfig
from bert_jax.inference import jitted
from bert_jax.models import Bert, MaskedLM
from bert_jax.tasks.pretraining import PretrainingConfig
from bert_jax.tokenizers import ByteLevelBPE
from bert_jax.training import checkpoints, loop, runs
from bert_jax.training.config import TrainConfig
from bert_jax.views import page

ADDRESSES = ("gs://bucket/x", "s3://bucket/x", "hf://a/b", "gs:/bucket/x")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    tokenizer = wordpiece(tmp_path_factory.mktemp("vocab"), LETTERS)
    return made(MaskedLM(Bert(TINY)), tokenizer)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def rows(model, out):
    """Prepares a text of two documents."""
    Path("text.txt").write_text("a b\n\nc d\n\ne f\n")
    recipe = RowConfig(sequence_length=8)
    preparation.prepare(
        ["text.txt"], out, tokenizer=model.tokenizer, recipe=recipe, processes=1
    )


TASK = PretrainingConfig(recipe=RowConfig(sequence_length=16))
CONFIG = TrainConfig(TINY, TASK, num_steps=1)
LABELLED = {"train": "a.tsv", "dev": "a.tsv"}
PYTHON = {
    "train": lambda m, x: bert_jax.train(CONFIG, x),
    "train several": lambda m, x: runs.train(CONFIG, x),
    "open_workdir": lambda m, x: loop.open_workdir(x, CONFIG),
    "finetune": lambda m, x: bert_jax.finetune(m, "classify", **LABELLED, workdir=x),
    "pretrain": lambda m, x: bert_jax.pretrain(m, "a.txt", workdir=x),
    "text": lambda m, x: corpus.files([x]),
    "raw lines": lambda m, x: bert_jax.pretrain(m, x),
    "prepare": rows,
    "task.prepared": lambda m, x: PretrainingConfig(prepared=x).open_rows(x, TINY),
    "rows": lambda m, x: prepared_rows.PreparedRows(x),
    "labelled": lambda m, x: labelled_files.read_text(x),
    "load": lambda m, x: bert_jax.load(x),
    "tokenizer": lambda m, x: tokenizers.load(x),
    "tokenizer.save": lambda m, x: m.tokenizer.save(x),
    "save": lambda m, x: m.save(x),
    "save_tf1": lambda m, x: m.save_tf1(x),
    "save_orbax": lambda m, x: pretrained.save_orbax(x, m._checkpoint()),
    "export": lambda m, x: bert_jax.export(m, x),
    "page": lambda m, x: page.write(x, "page"),
    "cache": lambda m, x: jitted.use_compilation_cache(x),
    "checkpoints": lambda m, x: checkpoints.Checkpoints(x),
}


@pytest.mark.parametrize("name", PYTHON)
def test_every_call_refuses_an_address(model, here, name):
    with pytest.raises(ValueError, match="gs:/+bucket/x is an address, and only"):
        PYTHON[name](model, "gs://bucket/x")
    assert not Path("gs:").exists()


SHELL = [
    "prepare a.txt --out ADDRESS",
    "prepare ADDRESS --tokenizer vocab.txt --out rows",
    "prepare a.txt --tokenizer ADDRESS --out rows",
    "vocab a.txt --out ADDRESS",
    "vocab ADDRESS --out new",
    "embed a.txt --model m --out ADDRESS",
    "embed ADDRESS --model m",
    "embed a.txt --model ADDRESS",
    "classify a.txt --model m --out ADDRESS",
    "answer Who? --context ADDRESS --model m",
    "view 'a b' --model m --out ADDRESS",
    "convert m --out ADDRESS",
    "export m --out ADDRESS",
    "check ADDRESS",
    "describe ADDRESS",
]


@pytest.mark.parametrize("line", SHELL)
def test_every_command_refuses_an_address(model, line, capsys, monkeypatch):
    monkeypatch.setattr(jitted, "use_compilation_cache", lambda: None)
    Path("a.txt").write_text("a b\n\nc d\n")
    model.tokenizer.save(".")
    if " m" in line:
        model.save("m")
    before = {path.name for path in Path().iterdir()}
    with pytest.raises(SystemExit) as ended:
        cli.main(line.replace("'a b'", "a_b").replace("ADDRESS", ADDRESSES[0]).split())
    errors = capsys.readouterr().err
    assert ended.value.code == 2 and "is an address, and only" in errors
    assert len(errors.splitlines()) == 1
    assert {path.name for path in Path().iterdir()} == before


@pytest.mark.parametrize("address", ADDRESSES)
def test_addresses_are_told_from_paths(address):
    with pytest.raises(ValueError, match="give a path on one"):
        files.local_path(address)
    assert files.local_path("~/x") == Path.home() / "x"
    for path in ("a:b/c", "tfds:glue/sst2:train", "C:/x", "a b: c", "/x/gs:/y"):
        assert files.local_path(path) == Path(path)


def test_a_file_that_cannot_be_written_is_left_as_it_was(here):
    old = here / "old.txt"
    old.write_text("old")
    with pytest.raises(files.WriteError, match=r"old.txt cannot be written \(No space"):
        with files.new_file(old) as file:
            file.write("half")
            raise OSError(28, "No space left on device")
    assert [path.name for path in here.iterdir()] == ["old.txt"]
    assert old.read_text() == "old"
    with pytest.raises(FileNotFoundError):  # of another file: passes as it is
        with files.new_file(old):
            open("absent")


@pytest.fixture
def no_room():
    """The largest file of this process has a thousand bytes."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_full_disk_leaves_no_torn_file_and_one_sentence(model, here, no_room):
    longer = ByteLevelBPE.train(["a b c"], 261)
    attention = model.attention("a b")
    for call, name in (
        (lambda: model.save("saved"), "tokenizer.json"),
        (lambda: pretrained.save_tf1("tf1", model._checkpoint()), "tokenizer.json"),
        (lambda: longer.save("bpe"), "vocab.json"),
        (lambda: bert_jax.export(model, "exported"), "model.stablehlo"),
        (lambda: attention.save_html("view.html"), "view.html"),
    ):
        with pytest.raises(files.WriteError, match=r"cannot be written \(") as raised:
            call()
        assert name in str(raised.value) and len(str(raised.value).splitlines()) == 1
    for path in here.rglob("*"):
        assert path.is_dir() or (path.stat().st_size < 1000 and path.name[0] != ".")


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only for root")
def test_a_read_only_directory_is_named(model, here):
    here.chmod(0o500)
    with pytest.raises(files.WriteError, match="saved cannot be written"):
        model.save("saved")


def test_a_file_in_the_way_of_a_directory_is_named(model, here):
    Path("taken").write_text("x")
    for call in (model.save, model.save_tf1, model.tokenizer.save):
        with pytest.raises(files.WriteError, match="taken cannot be written"):
            call("taken")
    with pytest.raises(ValueError, match="taken exists already"):
        bert_jax.export(model, "taken")
