"""The examples in docstrings of public names run and give what they show."""

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
from bert_jax.objectives import contrastive, masking
from bert_jax.tasks.classification import ClassificationConfig
from bert_jax.training.config import TrainConfig

# Modules whose names are all public; elsewhere, names that a config or page imports.
MODULES = (
    *(
        bert_jax,
        contrastive,
        inference,
        masking,
        metrics,
        models,
        models.attention_scores,
    ),
    *(pretrained, tokenizers, views),
)

# Names that raise no error of their own, so their docstrings list none.
RAISES_NOTHING = {
    "data.ragged.RaggedRows",
    "inference.attention.Attention",
    "inference.choose.Choice",
    "inference.classify.Label",
    "inference.fill_mask.Guess",
    "inference.jitted.use_compilation_cache",
    "inference.model.Model.of",
    "inference.rank.Ranked",
    "inference.search.Hit",
    "inference.span_decoding.Span",
    "inference.tag.NamedEntity",
    "inference.tag.Tag",
    "inference.word_alignment.Words",
    "inference.word_map.WordMap",
    "metrics.answers.answer_f1",
    "metrics.answers.as_shares",
    "metrics.answers.best_threshold",
    "metrics.answers.exact_match",
    "metrics.answers.normalize_answer",
    "metrics.classes.accuracy",
    "metrics.classes.baseline_name",
    "metrics.classes.f1",
    "metrics.classes.is_no_better",
    "metrics.classes.matthews",
    "metrics.classes.pearson",
    "metrics.classes.spearman",
    "metrics.retrieval.accuracy_at",
    "metrics.retrieval.average_precision",
    "metrics.retrieval.ndcg_at",
    "metrics.retrieval.precision_at",
    "metrics.retrieval.recall_at",
    "metrics.retrieval.reciprocal_rank",
    "metrics.similarity.triplet_accuracy",
    "metrics.tagging.Entity",
    "metrics.tagging.EntityScore",
    "metrics.tagging.are_entities",
    "metrics.tagging.entities",
    "metrics.tagging.entity_score",
    "metrics.tagging.entity_scores_by_type",
    "models.bert.Embeddings",
    "models.bert.sized",
    *(
        f"models.attention_scores.{name}"
        for name in ("additive", "cosine", "dot", "general", "location", "scaled_dot")
    ),
    "models.heads.Features",
    "models.heads.MaskedLM",
    "models.heads.PermutationLM",
    "models.heads.Pretraining",
    "models.heads.ReplacedTokenDetection",
    "models.heads.SpanClassifier",
    "models.heads.TokenClassifier",
    "models.layers.attention_weights",
    "models.xlnet.XLNet",
    "models.xlnet.next_memory",
    "objectives.contrastive.Loss",
    "objectives.contrastive.VectorGroups",
    "objectives.masking.Vocabulary",
    "objectives.masking.choose_spans",
    "objectives.masking.mask_tokens",
    "objectives.masking.ngram_sizes",
    "objectives.masking.row_keys",
    "objectives.masking.units_ahead",
    "objectives.masking.word_starts",
    "objectives.permutation.perm_mask",
    "pretrained.checkpoint.Checkpoint",
    "pretrained.checkpoint.Settings",
    "pretrained.checkpoint.keep_settings",
    "pretrained.family.Head",
    "pretrained.load_settings",
    "tasks.classification.classification_totals",
    "tokenizers.vocabulary.SpecialTokens",
    "training.config.TrainConfig",
    "views.measures.mean_cosine",
    "views.measures.principal_components",
}


def exported():
    """The names of `MODULES`."""
    for module in MODULES:
        own = {k for k, x in vars(module).items() if is_of(x, module)}
        for name in getattr(module, "__all__", own):
            yield getattr(module, name)


def is_of(member, module):
    """True if a name is public and is defined in this module."""
    is_own = getattr(member, "__module__", None) == module.__name__
    return is_own and not member.__name__.startswith("_")


def imported():
    """The names that configs and pages import from inside the package."""
    code = [path.read_text("utf-8") for path in (ROOT / "configs").glob("[!_]*.py")]
    code += [b.text for page in PAGES for b in blocks(page) if b.language == "python"]
    for node in (node for text in code for node in ast.walk(ast.parse(text))):
        if isinstance(node, ast.ImportFrom) and node.module.startswith("bert_jax."):
            for alias in node.names:
                yield getattr(importlib.import_module(node.module), alias.name)


def methods(owner):
    """The public functions of a class; none for a function."""
    for name, member in vars(owner).items() if inspect.isclass(owner) else ():
        member = getattr(member, "__func__", member)
        public = not name.startswith("_") or name == "__call__"
        if public and inspect.isfunction(member):
            yield member


def inherited(member):
    """The public functions of a class and of those of its bases that are ours."""
    for home in inspect.getmro(member) if inspect.isclass(member) else ():
        if home.__module__.startswith("bert_jax"):
            yield from methods(home)


def named(members):
    """Functions and classes by their names in the package."""
    for member in members:
        if inspect.isclass(member) or inspect.isfunction(member):
            module = member.__module__.removeprefix("bert_jax.")
            yield f"{module}.{member.__qualname__}", member


PUBLIC = dict(named([*exported(), *imported(), *methods(bert_jax.Model)]))
# Other methods need no example, but their examples are run.
OTHERS = named(method for member in PUBLIC.values() for method in methods(member))
EXAMPLES = PUBLIC | {name: x for name, x in OTHERS if ">>>" in (x.__doc__ or "")}


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    """The objects that the examples use without defining them."""
    tokenizer = wordpiece(tmp_path_factory.mktemp("vocabulary"), LETTERS)
    encoder, classes = Bert(TINY), ("no", "yes")
    model = made(MaskedLM(encoder), tokenizer)
    return {
        "model": model,
        "reader": made(SpanClassifier(encoder), tokenizer),
        "classifier": made(SequenceClassifier(encoder, 2), tokenizer, classes),
        "reranker": made(SequenceClassifier(encoder, 1), tokenizer),
        "chooser": made(MultipleChoice(encoder), tokenizer),
        "tagger": made(TokenClassifier(encoder, 2), tokenizer, ("O", "B-x")),
        # As described in the docstring of `bert_jax`.
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


# Examples that train.
TRAINING = ("api.finetune", "api.pretrain", "api.train")
CASES = [
    pytest.param(name, marks=pytest.mark.slow if name in TRAINING else ())
    for name in sorted(EXAMPLES)
]


@pytest.mark.parametrize("name", CASES)
def test_the_example_of_a_docstring_gives_what_it_shows(
    name, names, files, monkeypatch
):
    monkeypatch.chdir(files)
    member = EXAMPLES[name]
    module = sys.modules[member.__module__]
    finder = doctest.DocTestFinder(recurse=False, exclude_empty=False)
    known = vars(module) | names | {"config": config()}
    (test,) = finder.find(member, name, module=module, globs=known)
    assert test.examples, f"{name} has no example"
    # Printed progress is not part of an example; values are.
    monkeypatch.setattr("builtins.print", lambda *_, **__: None)
    monkeypatch.setattr("sys.stderr", Terminal())  # takes what would go to stdout
    runner, report = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS), io.StringIO()
    runner.run(test, out=report.write)
    assert not runner.failures, report.getvalue()


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_a_docstring_has_a_summary_and_names_its_errors(name):
    text = inspect.getdoc(PUBLIC[name])
    assert text and text.split("\n")[0].endswith((".", ":", "and"))
    texts = [text, *(inspect.getdoc(x) or "" for x in inherited(PUBLIC[name]))]
    raises = any("Raises" in x for x in texts)
    assert raises != (name in RAISES_NOTHING), f"{name}: list the errors it raises"
