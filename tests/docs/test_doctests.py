"""The docstrings of public names: their examples run."""

import ast
import doctest
import importlib
import inspect
import io
import sys

import jax
import numpy as np
import pytest
from pages import PAGES, ROOT, blocks
from test_logs import Terminal
from tiny import LETTERS, TINY, made, wordpiece, written

import bert_jax
from bert_jax import inference, metrics, models, pretrained, tokenizers, views
from bert_jax.models import (
    Bert,
    MaskedLM,
    MultipleChoice,
    SequenceClassifier,
    SpanClassifier,
    TokenClassifier,
)
from bert_jax.objectives import masking
from bert_jax.tasks.classification import ClassificationConfig
from bert_jax.training.config import TrainConfig

# Public from end to end; of other modules, what a config or a page imports is.
MODULES = (bert_jax, inference, masking, metrics, models, pretrained, tokenizers, views)

# What refuses nothing of its own, so that its docstring names no error.
REFUSES_NOTHING = {
    "data.ragged.RaggedRows",
    "masking.Vocabulary",
    "masking.choose_spans",
    "masking.mask_tokens",
    "masking.ngram_sizes",
    "masking.units_ahead",
    "masking.word_starts",
    "metrics.accuracy",
    "metrics.f1",
    "metrics.matthews",
    "metrics.pearson",
    "metrics.spearman",
    "models.bert.Embeddings",
    "models.bert.sized",
    "models.heads.Features",
    "models.heads.MaskedLM",
    "models.heads.Pretraining",
    "models.heads.ReplacedTokenDetection",
    "models.heads.SpanClassifier",
    "models.heads.TokenClassifier",
    "models.layers.attention_weights",
    "models.permutation.PermutationLM",
    "models.xlnet.XLNet",
    "models.xlnet.remembered",
    "permutation.perm_mask",
    "inference.attention.Attention",
    "inference.choose.Choice",
    "inference.classify.Label",
    "inference.fill_mask.Guess",
    "inference.jitted.use_compilation_cache",
    "inference.model.Model.of",
    "inference.span_decoding.Span",
    "inference.tag.Tag",
    "inference.word_alignment.Words",
    "pretrained.checkpoint.Checkpoint",
    "pretrained.names.Head",
    "tasks.classification_run.totals_of",
    "tokenizers.special.SpecialTokens",
    "views.measures.mean_cosine",
    "views.measures.principal_components",
    "inference.word_map.WordMap",
}


def exported():
    """Whatever `MODULES` hold."""
    for module in MODULES:
        own = {k for k, x in vars(module).items() if is_of(x, module)}
        for name in getattr(module, "__all__", own):
            yield getattr(module, name)


def is_of(found, module):
    """Whether a module makes a public name, not another one."""
    its = getattr(found, "__module__", None) == module.__name__
    return its and not found.__name__.startswith("_")


def imported():
    """What configs and pages take from inside the package."""
    code = [path.read_text("utf-8") for path in (ROOT / "configs").glob("[!_]*.py")]
    code += [b.text for page in PAGES for b in blocks(page) if b.language == "python"]
    for node in (node for text in code for node in ast.walk(ast.parse(text))):
        if isinstance(node, ast.ImportFrom) and node.module.startswith("bert_jax."):
            for alias in node.names:
                yield getattr(importlib.import_module(node.module), alias.name)


def methods(found):
    """The public functions of a class."""
    for name, member in vars(found).items() if inspect.isclass(found) else ():
        member = getattr(member, "__func__", member)
        public = not name.startswith("_") or name == "__call__"
        if public and inspect.isfunction(member):
            yield member


def inherited(found):
    """The public functions of a class and of those of ours that it extends."""
    for home in inspect.getmro(found) if inspect.isclass(found) else ():
        if home.__module__.startswith("bert_jax"):
            yield from methods(home)


def named(members):
    """Functions and classes by their names in the package."""
    for found in members:
        if inspect.isclass(found) or inspect.isfunction(found):
            place = found.__module__.removeprefix("bert_jax.")
            yield f"{place}.{found.__qualname__}", found


PUBLIC = dict(named([*exported(), *imported(), *methods(bert_jax.Model)]))
# Other methods need no example; those there are run.
OTHERS = named(method for found in PUBLIC.values() for method in methods(found))
EXAMPLES = PUBLIC | {name: x for name, x in OTHERS if ">>>" in (x.__doc__ or "")}


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    """What the examples speak of."""
    tokenizer = wordpiece(tmp_path_factory.mktemp("vocabulary"), LETTERS)
    encoder, classes = Bert(TINY), ("no", "yes")
    model = made(MaskedLM(encoder), tokenizer)
    return {
        "model": model,
        "reader": made(SpanClassifier(encoder), tokenizer),
        "classifier": made(SequenceClassifier(encoder, 2), tokenizer, classes),
        "chooser": made(MultipleChoice(encoder), tokenizer),
        "tagger": made(TokenClassifier(encoder, 2), tokenizer, ("O", "B-x")),
        # As the legend in `bert_jax` says.
        "encoder": encoder,
        "params": model.params["encoder"],
        "ids": jax.numpy.arange(5, 19).reshape(2, 7),
        "key": jax.random.key(0),
        "tokenizer": tokenizer,
    }


@pytest.fixture(scope="module")
def files(tmp_path_factory, names):
    """A directory with the files that the examples name."""
    folder = tmp_path_factory.mktemp("files")
    for seed, name in enumerate(("train.tsv", "dev.tsv")):
        written(folder / name, 24, seed)
    draw = np.random.default_rng(0)
    documents = [
        "".join(f"{' '.join(draw.choice(list('abcdefgh'), 9))} .\n" for _ in range(6))
        for _ in range(40)
    ]
    (folder / "text.txt").write_text("\n".join(documents))
    names["model"].save(folder / "start")
    return folder


def config():
    """A run of a few steps."""
    task = ClassificationConfig(
        train="train.tsv", dev="dev.tsv", max_length=16, epochs=1
    )
    return TrainConfig(encoder=None, task=task, batch_size=8, init_from="start")


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_the_example_of_a_docstring_is_true(name, names, files, monkeypatch):
    monkeypatch.chdir(files)
    found = EXAMPLES[name]
    module = sys.modules[found.__module__]
    finder = doctest.DocTestFinder(recurse=False, exclude_empty=False)
    known = vars(module) | names | {"config": config()}
    (test,) = finder.find(found, name, module=module, globs=known)
    assert test.examples, f"{name} has no example"
    # What a run tells a person is no part of an example, its values are.
    monkeypatch.setattr("builtins.print", lambda *_, **__: None)
    monkeypatch.setattr("sys.stderr", Terminal())  # takes what would go to stdout
    runner, said = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS), io.StringIO()
    runner.run(test, out=said.write)
    assert not runner.failures, said.getvalue()


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_a_docstring_says_shapes_meaning_and_errors(name):
    text = inspect.getdoc(PUBLIC[name])
    assert text and text.split("\n")[0].endswith((".", ":", "and"))
    said = [text, *(inspect.getdoc(x) or "" for x in inherited(PUBLIC[name]))]
    refuses = any("Raises" in x for x in said)
    assert refuses != (name in REFUSES_NOTHING), f"{name}: what does it raise?"
