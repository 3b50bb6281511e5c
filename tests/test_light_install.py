"""The package without its extras, in a fresh environment."""

import shutil
import subprocess
import sys

import pytest
from source import ROOT

pytestmark = pytest.mark.slow

# Without the extra `train`: megabytes and packages, pip and setuptools included.
MOST_MEGABYTES, MOST_PACKAGES = 1000, 65

USE = """
import importlib.util, pathlib
import bert_jax, jax, numpy
from bert_jax.models import (
    Bert, BertConfig, Features, MaskedLM, MultipleChoice, SequenceClassifier,
    SpanClassifier, TokenClassifier,
)
from bert_jax.tokenizers import WordPiece

pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh"]
pathlib.Path("vocab.txt").write_text("\\n".join(pieces))
tokenizer = WordPiece.from_vocab("vocab.txt")
encoder = Bert(BertConfig(len(pieces), 12, 1, 3, 20, max_position_embeddings=32))

def model(head, labels=()):
    shape = (1, 2, 2) if isinstance(head, MultipleChoice) else (1, 2)
    params = head.init(jax.random.key(0), numpy.zeros(shape, int))["params"]
    bert_jax.Model.of(head, params, tokenizer, labels).save("model")
    return bert_jax.load("model")

assert model(Features(encoder)).embed(["a b", "c"]).shape == (2, 12)
assert len(model(MaskedLM(encoder)).fill_mask("a [MASK]", k=3)[0]) == 3
assert model(SequenceClassifier(encoder, 2), ("no", "yes")).classify("a b")
assert model(SpanClassifier(encoder)).answer("a b", "c d e f")
assert model(TokenClassifier(encoder, 2), ("O", "B-x")).tag("a b c")
assert model(MultipleChoice(encoder)).choose("a b", ["c", "d"])
features = model(Features(encoder))
features.attention("a b", "c").save_html("page.html")
bert_jax.export(features, "exported")
bert_jax.pretrained.save_orbax("orbax", bert_jax.pretrained.load("model"))
vectors = [x.embed(["a b"]) for x in (features, bert_jax.load("orbax"))]
assert numpy.array_equal(*vectors)
assert not importlib.util.find_spec("tensorflow")
"""
TRAIN = """
import bert_jax
bert_jax.finetune("model", "classify", train="train.tsv", dev="dev.tsv")
"""


def test_inference_works_without_the_train_extra_and_training_names_it(tmp_path):
    source, folder = tmp_path / "source", tmp_path / "folder"
    folder.mkdir()
    shutil.copytree(ROOT / "bert_jax", source / "bert_jax")
    for name in ("setup.cfg", "pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, source)
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv/bin/python"
    subprocess.run([python, "-m", "pip", "install", "-q", source], check=True)

    listed = run(folder, python, "-m", "pip", "list", "--format=freeze").stdout
    assert len(listed.splitlines()) <= MOST_PACKAGES
    files = [x for x in (tmp_path / "venv").rglob("*") if not x.is_symlink()]
    size = sum(x.stat().st_size for x in files if x.suffix != ".pyc")
    assert size / 1e6 < MOST_MEGABYTES

    done = run(folder, python, "-c", USE)
    assert not done.returncode, done.stderr
    text = run(folder, python, "-m", "bert_jax", "embed", "a b", "--model", "model")
    assert not text.returncode, text.stderr

    for name in ("train.tsv", "dev.tsv"):
        (folder / name).write_text("a b\tno\nc d\tyes\n" * 8)
    error = run(folder, python, "-c", TRAIN).stderr.strip().splitlines()[-1]
    assert "pip install 'bert_jax[train]'" in error, error


def run(folder, *command):
    """A finished command of the fresh environment."""
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)
