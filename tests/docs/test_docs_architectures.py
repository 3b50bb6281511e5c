"""The examples of docs/architectures.md run and give the matrices on the page."""

import ast
import pathlib
import re

import numpy as np
import pytest

PAGE = pathlib.Path(__file__).parents[2] / "docs/architectures.md"
BLOCK = re.compile(r"```(\w*)\n(.*?)```", re.S)


@pytest.mark.slow
def test_each_mask_is_the_matrix_below_it():
    names, value, compared = {}, None, 0
    for kind, block in BLOCK.findall(PAGE.read_text("utf-8")):
        if kind not in ("python", ""):
            continue
        if kind == "python":
            tree = ast.parse(block)
            last = tree.body[-1]
            exec(compile(ast.Module(tree.body[:-1], []), PAGE.name, "exec"), names)
            if isinstance(last, ast.Expr):
                value = eval(compile(ast.Expression(last.value), "", "eval"), names)
            else:
                exec(compile(ast.Module([last], []), PAGE.name, "exec"), names)
            continue
        assert str(np.asarray(value)) == block.strip()
        compared += 1
    assert compared == 4
    assert names["scores"].shape == (1, 4, 20) and value.shape == (1, 3, 20)
