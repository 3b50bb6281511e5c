"""The notebooks run from top to bottom, and are what the site says they are."""

import ast
import os
import re
import string

import nbformat
import pytest
from nbclient import NotebookClient
from pages import PAGES, ROOT
from tiny import made, wordpiece

from bert_jax.models import BertConfig, Features, MaskedLM

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
NAMES = [path.name for path in NOTEBOOKS]
each = pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)

BADGE = "https://colab.research.google.com/assets/colab-badge.svg"
COLAB = "https://colab.research.google.com/github/REPOSITORY/blob/main/notebooks"

# Where notebooks find a model: in a directory of this name, as on the Hub.
MODELS = {
    "google-bert/bert-base-uncased": MaskedLM,
    "sentence-transformers/all-MiniLM-L6-v2": Features,
}

# What takes the place of the numbers in the cell tagged "parameters".
SMALL = {
    "answer.ipynb": {"paragraphs": 20, "epochs": 1},
    "classify.ipynb": {"epochs": 1},
    "pretrain.ipynb": {"documents": 20, "num_steps": 3, "layers": 1, "width": 32},
    "tag.ipynb": {"sentences": 60, "epochs": 1},
    "tpu.ipynb": {"num_steps": 3, "layers": 1, "width": 128},
}
# Of a flag that is given twice the last one counts.
XLA = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=2"
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LETTERS = [*string.ascii_lowercase, *string.digits, *string.punctuation]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A directory with the models that the notebooks name."""
    folder = tmp_path_factory.mktemp("world")
    tokenizer = wordpiece(folder, [*SPECIAL, *LETTERS, *(f"##{x}" for x in LETTERS)])
    config = BertConfig(tokenizer.vocab_size, 12, 1, 3, 20, max_position_embeddings=256)
    for name, head in MODELS.items():
        made(head(config.build()), tokenizer).save(folder / name)
    return folder


def code(path):
    """The cells of code, the first of which installs."""
    cells = nbformat.read(path, as_version=4).cells
    return [cell for cell in cells if cell.cell_type == "code"]


@each
def test_a_notebook_runs_from_top_to_bottom(path, world, tmp_path, monkeypatch):
    for model in MODELS:
        link = tmp_path / model
        link.parent.mkdir(exist_ok=True)
        link.symlink_to(world / model)
    # The checkout, whatever is installed; for the others see conftest.py.
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("XLA_FLAGS", XLA)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JAX_CPU_ENABLE_ASYNC_DISPATCH", "false")
    notebook = nbformat.read(path, as_version=4)
    notebook.cells = [y for x in code(path) for y in to_run(path.name, x)]
    client = NotebookClient(
        notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()  # raises the error of a cell, with its traceback


def to_run(name, cell):
    """What is run for a cell: itself, and smaller numbers after those it sets."""
    if "install" in tags(cell):
        return []
    if "parameters" not in tags(cell):
        return [cell]
    small = "\n".join(f"{key} = {value}" for key, value in SMALL[name].items())
    return [cell, nbformat.v4.new_code_cell(small)]


def tags(cell):
    return cell.metadata.get("tags", [])


@pytest.mark.parametrize("name", SMALL)
def test_numbers_that_are_replaced_are_those_of_the_one_cell_of_parameters(name):
    cells = [x for x in code(ROOT / "notebooks" / name) if "parameters" in tags(x)]
    (tree,) = [ast.parse(cell.source) for cell in cells]
    names = [x.id for x in ast.walk(tree) if isinstance(x, ast.Name)]
    assert names == [*SMALL[name]]


@each
def test_a_notebook_installs_first_and_only_there(path):
    first, *others = code(path)
    assert tags(first) == ["install"]
    source = r"(git\+|\"bert_jax\[tpu\] @ git\+)https://github.com/REPOSITORY\"?"
    assert re.fullmatch(f"%pip install -q {source}", first.source)
    assert not any("install" in tags(cell) for cell in others)


@each
def test_a_notebook_has_less_than_forty_lines_of_code(path):
    lines = [line for cell in code(path) for line in cell.source.splitlines()]
    assert 0 < sum(bool(line.strip()) for line in lines) < 40


@each
def test_a_notebook_opens_in_colab_from_its_own_badge(path):
    first = nbformat.read(path, as_version=4).cells[0].source
    assert first.startswith(f"[![Open in Colab]({BADGE})]({COLAB}/{path.name})\n\n# ")


@each
def test_what_a_notebook_keeps_is_small_and_of_no_machine(path):
    text = path.read_text("utf-8")
    assert len(text) < 200_000
    assert not re.search(r"/(root|home|tmp|work|Users|var|opt)/", text)
    for cell in code(path):
        assert cell.execution_count is None
        assert {*cell.metadata} <= {"tags"}
        assert not [x for x in cell.outputs if x.output_type == "error"]


def test_nothing_but_notebooks_and_their_page_needs_an_address():
    placeholder = COLAB.split("/")[4]
    pages = [x for x in PAGES if x != "docs/notebooks.md"]
    assert not [x for x in pages if placeholder in (ROOT / x).read_text("utf-8")]


def test_the_page_of_notebooks_has_each_with_its_badge():
    page = (ROOT / "docs/notebooks.md").read_text("utf-8")
    badge = re.escape(f"[![Open in Colab]({BADGE})]({COLAB}/")
    assert sorted(re.findall(badge + r"(\w+\.ipynb)\)", page)) == NAMES
