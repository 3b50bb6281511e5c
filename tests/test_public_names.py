"""Laws of public names: all exist, and notebooks use no others."""

import ast
import importlib
import json
import re
from pathlib import Path

import pytest
from source import ROOT, import_names
from test_imports import is_in, is_public

ROOMS = ("data", "inference", "models", "objectives", "pretrained", "tasks")
ROOMS += ("tokenizers", "training", "views")
MODULES = ("bert_jax", *(f"bert_jax.{room}" for room in ROOMS))


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_exists(module):
    names = importlib.import_module(module).__all__
    assert names and len(set(names)) == len(names)
    for name in names:
        # As a user does, so that a submodule counts without a line that imports it.
        exec(f"from {module} import {name}", {})


def code_of(notebook: Path) -> str:
    """The code cells of a notebook, with `pass` for shell commands."""
    cells = json.loads(notebook.read_text("utf-8"))["cells"]
    code = "\n".join("".join(x["source"]) for x in cells if x["cell_type"] == "code")
    return re.sub(r"(?m)^( *)[%!].*", r"\1pass", code)


@pytest.mark.parametrize(
    "notebook", sorted((ROOT / "notebooks").rglob("*.ipynb")), ids=lambda x: x.stem
)
def test_a_notebook_imports_public_names_only(notebook):
    nodes = ast.walk(ast.parse(code_of(notebook)))
    names = [name for node in nodes for name in import_names(node)]
    assert names
    assert not [x for x in names if is_in(x, "bert_jax") and not is_public(x)]
