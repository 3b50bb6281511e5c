"""The code in the documentation runs, and source that it shows is current."""

import csv
import json
import re
import shlex
import shutil
import subprocess

import jax
import pytest
import yaml
from absl import flags
from ml_collections import config_flags
from pages import PAGES, ROOT, blocks, source
from test_reference import reference
from tiny import written

import bert_jax
from bert_jax import tokenizers
from bert_jax.models import BertConfig, Pretraining
from bert_jax.pretrained.families import FAMILIES

# ml_collections loads config files by a method that Python will drop.
pytestmark = pytest.mark.filterwarnings("ignore:the load_module:DeprecationWarning")

# Blocks that do not run here, by their page and first words, with the reason.
NOT_RUN = {
    ("docs/getting-started.md", "classifier = "): "long; docs/fine-tuning.md has one",
    (
        "docs/command-line.md",
        "import jax.export",
    ): "test_export.py reads such a file",
    ("docs/command-line.md", "function, params"): "test_export.py calls it",
    ("docs/running.md", "import bert_jax"): "docs/extending.md makes this call",
}

# Names that a page uses without defining them.
NAMES = {
    "docs/attention.md": {"bert_jax": bert_jax},
    "docs/fine-tuning.md": {
        "context": "Ada wrote the notes in 1843.",
        "questions": ["Who wrote it?", "When?"],
        "contexts": ["Ada wrote it.", "It was in 1843."],
    },
}

# Directories in which pages expect a model.
MODELS = (
    "DIR",
    "my_model",
    "runs/quickstart/model",
    "sentence-transformers/all-MiniLM-L6-v2",
    "old_model",
)


@pytest.fixture(scope="module")
def world(prepared, tmp_path_factory):
    """A directory with the models and files that the pages name."""
    folder = tmp_path_factory.mktemp("world")
    tokenizer = tokenizers.load(prepared / "tokenizer")
    config = BertConfig(tokenizer.vocab_size, 12, 1, 3, 20, max_position_embeddings=512)
    head = Pretraining(config.build())
    draw = jax.jit(lambda key: head.init(key, jax.numpy.zeros((1, 2), int))["params"])
    model = bert_jax.Model.of(head, draw(jax.random.key(0)), tokenizer)
    for name in MODELS:
        model.save(folder / name)
    (folder / "rows128").symlink_to(prepared)
    for name, seed in (("train", 0), ("dev", 1), ("test", 2)):
        written(folder / f"{name}.tsv", 32, seed)
        answers(folder / f"{name}.json")
        choices(folder / f"{name}.csv")
        (folder / f"{name}.txt").write_text("Ada wrote the notes.\n" * 32)
        rows = ["Ada B-PER\nsleeps O\n", "in O\nRome B-LOC\n"] * 4
        (folder / f"{name}.conll").write_text("\n".join(rows))
    shutil.copy(folder / "dev.csv", folder / "val.csv")
    line = {"step": 1, "split": "train", "tokens_per_second": 1.0}
    (folder / "runs/quickstart/metrics.jsonl").write_text(json.dumps(line))
    for name in ("train", "dev"):
        (folder / f"{name}-v2.0.json").symlink_to(folder / f"{name}.json")
    return folder


def answers(path):
    question = {"id": "0", "question": "Who wrote it?", "is_impossible": False}
    question["answers"] = [{"text": "Ada", "answer_start": 0}]
    none = {"id": "1", "question": "Why?", "answers": [], "is_impossible": True}
    paragraph = {"context": "Ada wrote the notes.", "qas": [question, none]}
    path.write_text(json.dumps({"data": [{"paragraphs": [paragraph]}]}))


def choices(path):
    with path.open("w", newline="") as file:
        rows = [["He opens the door.", "He", "walks in.", "melts.", 0]] * 8
        header = ["sent1", "sent2", "ending0", "ending1", "label"]
        csv.writer(file).writerows([header, *rows])


@pytest.fixture
def here(world, tmp_path, monkeypatch):
    """A copy of that directory, made the current one."""
    shutil.copytree(world, tmp_path, symlinks=True, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    known = dict(FAMILIES)
    yield tmp_path
    # A page adds a family, which no other test should see.
    FAMILIES.clear()
    FAMILIES.update(known)


TRAINING = (
    "docs/embeddings.md",
    "docs/extending.md",
    "docs/fine-tuning.md",
)  # take a minute each
ELSEWHERE = ("docs/models.md", "docs/architectures.md")  # test_docs_*.py run them
WITH_PYTHON = [
    pytest.param(page, marks=pytest.mark.slow if page in TRAINING else ())
    for page in PAGES
    if page not in ELSEWHERE and any(block.is_run for block in blocks(page))
]


@pytest.mark.parametrize("page", WITH_PYTHON)
def test_the_python_of_a_page_runs_and_prints_what_the_page_shows(page, here, capsys):
    names = dict(NAMES.get(page, {}))
    printed = ""
    for block in blocks(page):
        if block.title == "prints":
            assert printed == block.text, f"{page}:{block.line}"
        if block.title.endswith(".py"):
            (here / block.title).write_text(block.text, "utf-8")
        if block.is_run and not reason(block):
            # So that a traceback has the line numbers of the page.
            code = "\n" * (block.line - 1) + block.text
            capsys.readouterr()
            exec(compile(code, ROOT / page, "exec"), names)
            printed = capsys.readouterr().out


def reason(block):
    """The reason why a block is not run; empty if it is run."""
    starts = (
        (start, why) for (page, start), why in NOT_RUN.items() if page == block.page
    )
    return next((why for start, why in starts if block.text.startswith(start)), "")


def test_every_exception_matches_a_block():
    reasons = {reason(b) for page in PAGES for b in blocks(page) if b.is_run}
    assert reasons == {"", *NOT_RUN.values()}


SHOWN = [b for page in PAGES for b in blocks(page) if ".py: " in b.title]


@pytest.mark.parametrize("block", SHOWN, ids=lambda b: f"{b.page}:{b.line}")
def test_source_that_a_page_shows_is_current(block):
    assert block.text == source(block.title)


SHELL = [b for page in PAGES for b in blocks(page) if b.language == "bash"]


@pytest.mark.parametrize("block", SHELL, ids=lambda b: f"{b.page}:{b.line}")
def test_a_shell_block_is_valid_and_names_files_and_extras_that_exist(block):
    subprocess.run(["bash", "-n"], input=block.text, text=True, check=True)
    extras = set(re.findall(r"(?m)^(\w+) =", (ROOT / "setup.cfg").read_text()))
    for line in block.text.replace("\\\n", " ").splitlines():
        for module in re.findall(r"python -m (benchmarks\.\w+)", line):
            assert (ROOT / f"{module.replace('.', '/')}.py").exists(), module
        for file in re.findall(r"(?<!\S)(?:configs|tests)/\w+\.py", line):
            assert (ROOT / file).exists(), file
        for extra in re.findall(r"\[([\w,]+)\]'", line):
            assert set(extra.split(",")) <= extras, extra


def test_recipes_that_a_page_defines_accept_the_flags_beside_them(here):
    lines = []
    for block in blocks("docs/extending.md"):
        if block.title.endswith(".py"):
            (here / block.title).write_text(block.text, "utf-8")
        if block.language == "bash":
            lines += block.text.splitlines()
    assert len(lines) == 2
    for line in lines:
        argv = [x for x in shlex.split(line)[1:] if not x.startswith("--workdir=")]
        values = flags.FlagValues()
        config_flags.DEFINE_config_file("config", flag_values=values, sys_argv=argv)
        values(argv)
        values.config.optimizer.validate(values.config.num_steps)


@pytest.mark.parametrize("page", [*PAGES, "CONTRIBUTING.md"])
def test_a_page_names_files_that_exist(page):
    text = (ROOT / page).read_text("utf-8")
    folders = "bert_jax|benchmarks|configs|examples|tests"
    for file in re.findall(rf"(?<![\w./])(?:{folders})/[\w/]*\.py\b", text):
        assert (ROOT / file).exists(), file


def test_the_recipes_name_every_config():
    text = (ROOT / "docs/recipes.md").read_text("utf-8")
    for file in (ROOT / "configs").glob("[!_]*.py"):
        assert f"`{file.name}" in text, f"docs/recipes.md lacks {file.name}"


def test_the_navigation_has_every_page_once():
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text())

    def pages(entry):
        for item in entry:
            value = next(iter(item.values())) if isinstance(item, dict) else item
            yield from [value] if isinstance(value, str) else pages(value)

    named = sorted(f"docs/{x}" for x in pages(config["nav"]))
    written = [x for x in named if x.startswith("docs/reference/")]
    assert sorted([*PAGES[1:], *written]) == named
    assert written == sorted(f"docs/reference/{room}.md" for room in reference.ROOMS)
