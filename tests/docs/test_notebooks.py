"""The notebooks run from top to bottom, and their page lists each of them."""

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

NOTEBOOKS = sorted((ROOT / "notebooks").rglob("*.ipynb"))
NAMES = [path.relative_to(ROOT / "notebooks").as_posix() for path in NOTEBOOKS]
HISTORY = [path for path in NOTEBOOKS if path.parent.name == "history"]
each = pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)

# The first cell; the notebook for TPUs installs another extra too.
INSTALL = """\
try:
    import bert_jax
except ImportError:
    %pip install -q "bert_jax[{extras}]\""""

# The models that notebooks name, here as directories of the same names.
MODELS = {
    "google-bert/bert-base-uncased": MaskedLM,
    "sentence-transformers/all-MiniLM-L6-v2": Features,
}

# Smaller values for the numbers in the cell tagged "parameters", by the file's name.
SMALL = {
    "answer.ipynb": {"paragraphs": 20, "epochs": 1},
    "classify.ipynb": {"epochs": 1},
    "embed.ipynb": {"epochs": 1},
    "fine_tuning.ipynb": {"num_steps": 2, "epochs": 1},
    "pretrain.ipynb": {"documents": 20, "num_steps": 3, "layers": 1, "width": 32},
    "rnn_to_transformer.ipynb": {"num_steps": 2},
    "tag.ipynb": {"sentences": 60, "epochs": 1},
    "three_pretrainings.ipynb": {"num_steps": 2},
    "tpu.ipynb": {"num_steps": 3, "layers": 1, "width": 128},
}
# If a flag is given twice, XLA uses the last one.
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
    """The code cells of a notebook; the first one installs the package."""
    cells = nbformat.read(path, as_version=4).cells
    return [cell for cell in cells if cell.cell_type == "code"]


@pytest.mark.slow
@each
def test_a_notebook_runs_from_top_to_bottom(path, world, tmp_path, monkeypatch):
    for model in MODELS:
        link = tmp_path / model
        link.parent.mkdir(exist_ok=True)
        link.symlink_to(world / model)
    # Import the checkout, even if another version is installed.
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
    """The cells to run for one cell: it, and smaller values after the parameters."""
    if "install" in tags(cell):
        return []
    if "parameters" not in tags(cell):
        return [cell]
    small = "\n".join(f"{key} = {value}" for key, value in SMALL[name].items())
    return [cell, nbformat.v4.new_code_cell(small)]


def tags(cell):
    return cell.metadata.get("tags", [])


@pytest.mark.parametrize("name", SMALL)
def test_the_replaced_numbers_are_those_of_the_only_parameters_cell(name):
    (path,) = [path for path in NOTEBOOKS if path.name == name]
    cells = [x for x in code(path) if "parameters" in tags(x)]
    (tree,) = [ast.parse(cell.source) for cell in cells]
    names = [x.id for x in ast.walk(tree) if isinstance(x, ast.Name)]
    assert names == [*SMALL[name]]


@each
def test_a_notebook_installs_first_and_only_there(path):
    first, *others = code(path)
    assert tags(first) == ["install"]
    extras = "train,tpu" if path.name == "tpu.ipynb" else "train"
    assert first.source == INSTALL.format(extras=extras)
    assert not any("install" in tags(cell) for cell in others)


@each
def test_a_notebook_has_few_lines_of_code(path):
    limit = 180 if path in HISTORY else 40  # lectures compute by hand, and draw
    _, *cells = code(path)  # without the one that installs
    lines = [line for cell in cells for line in cell.source.splitlines()]
    assert 0 < sum(bool(line.strip()) for line in lines) < limit


@pytest.mark.parametrize("path", HISTORY, ids=[path.name for path in HISTORY])
def test_a_lecture_ends_with_three_things_to_try(path):
    cells = nbformat.read(path, as_version=4).cells
    assert 15 <= len(cells) <= 36
    title, *tasks = cells[-1].source.splitlines()
    assert title == "## Three things to try"
    numbers = [task[:3] for task in tasks if task[:1].isdigit()]
    assert numbers == ["1. ", "2. ", "3. "]


@each
def test_a_notebook_begins_with_its_title(path):
    first = nbformat.read(path, as_version=4).cells[0]
    assert first.cell_type == "markdown" and first.source.startswith("# ")


@each
def test_stored_outputs_are_small_and_name_no_path_of_a_machine(path):
    text = path.read_text("utf-8")
    assert len(text) < 200_000
    assert not re.search(r"/(root|home|tmp|work|Users|var|opt)/", text)
    for cell in code(path):
        assert cell.execution_count is None
        assert {*cell.metadata} <= {"tags"}
        assert not [x for x in cell.outputs if x.output_type == "error"]


def test_no_page_or_notebook_has_a_placeholder_address():
    files = [ROOT / page for page in PAGES] + NOTEBOOKS
    assert not [x for x in files if "REPOSITORY" in x.read_text("utf-8")]


def test_the_page_of_notebooks_lists_each_of_them():
    page = (ROOT / "docs/notebooks.md").read_text("utf-8")
    assert sorted(re.findall(r"(?m)^\| `([\w/]+\.ipynb)` \|", page)) == sorted(NAMES)
