"""The docstrings of what `import bert_jax` offers: their examples run."""

import doctest
import inspect
import io
import sys

import jax
import numpy as np
import pytest
from tiny import LETTERS, TINY, made, wordpiece, written

import bert_jax
from bert_jax.models import (
    Bert,
    MaskedLM,
    MultipleChoice,
    SequenceClassifier,
    SpanClassifier,
    TokenClassifier,
)
from bert_jax.tasks.classification import Classification
from bert_jax.training.config import TrainConfig

# What needs TensorFlow in this process.
WITHOUT = {"Model.save_tf1"}


def offered():
    """Every public function and method, by name."""
    for name in bert_jax.__all__:
        found = getattr(bert_jax, name)
        if inspect.ismodule(found):
            continue
        yield name, found
        if inspect.isclass(found):
            members = vars(found).items()
            kinds = (classmethod, staticmethod)
            for below, member in members:
                member = member.__func__ if isinstance(member, kinds) else member
                public = inspect.isfunction(member) and not below.startswith("_")
                if public or below == "__call__":
                    yield f"{name}.{below}", member


OFFERED = dict(offered())


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    """What the examples speak of."""
    tokenizer = wordpiece(tmp_path_factory.mktemp("vocabulary"), LETTERS)
    encoder, classes = Bert(TINY), ("no", "yes")
    head = MultipleChoice(encoder)
    ids = np.zeros((1, 2, 2), np.int32)
    params = head.init(jax.random.key(0), ids)["params"]
    return {
        "model": made(MaskedLM(encoder), tokenizer),
        "reader": made(SpanClassifier(encoder), tokenizer),
        "classifier": made(SequenceClassifier(encoder, 2), tokenizer, classes),
        "chooser": bert_jax.Model.of(head, params, tokenizer),
        "tagger": made(TokenClassifier(encoder, 2), tokenizer, ("O", "B-x")),
    }


@pytest.fixture
def files(tmp_path, monkeypatch, names):
    """An empty directory with the files that the examples name."""
    monkeypatch.chdir(tmp_path)
    for seed, name in enumerate(("train.tsv", "dev.tsv")):
        written(tmp_path / name, 24, seed)
    draw = np.random.default_rng(0)
    documents = [
        "".join(f"{' '.join(draw.choice(list('abcdefgh'), 9))} .\n" for _ in range(6))
        for _ in range(40)
    ]
    (tmp_path / "text.txt").write_text("\n".join(documents))
    names["model"].save(tmp_path / "start")


def config():
    """A run of a few steps."""
    task = Classification(train="train.tsv", dev="dev.tsv", max_length=16, epochs=1)
    return TrainConfig(encoder=None, task=task, batch_size=8, init_from="start")


@pytest.mark.parametrize("name", sorted(OFFERED.keys() - WITHOUT))
def test_the_example_of_a_docstring_is_true(name, names, files, monkeypatch):
    found = OFFERED[name]
    module = sys.modules[found.__module__]
    finder = doctest.DocTestFinder(recurse=False, exclude_empty=False)
    known = vars(module) | names | {"config": config()}
    (test,) = finder.find(found, name, module=module, globs=known)
    assert test.examples, f"{name} has no example"
    # What a run tells a person is no part of an example, its values are.
    monkeypatch.setattr("builtins.print", lambda *_, **__: None)
    runner, said = doctest.DocTestRunner(), io.StringIO()
    runner.run(test, out=said.write)
    assert not runner.failures, said.getvalue()


@pytest.mark.parametrize("name", sorted(OFFERED))
def test_a_docstring_says_shapes_meaning_and_errors(name):
    text = inspect.getdoc(OFFERED[name])
    assert text and text.split("\n")[0].endswith((".", ":", "and"))
    raises = "Raises" in text or name in ("Model", "Model.of")
    assert raises, f"{name} does not say what it raises"
