"""The syntax trees of the repository: files, imports, docstrings and variables."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "bert_jax"


def python_files(*places: str) -> Iterator[Path]:
    """The Python files of folders, and single files, by their paths from the root."""
    for place in places:
        path = ROOT / place
        yield from sorted(path.rglob("*.py")) if path.is_dir() else [path]


@cache
def tree(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text("utf-8"))


def imported(path: Path) -> Iterator[str]:
    """Dotted names that a file imports anywhere, also inside functions."""
    for node in ast.walk(tree(path)):
        yield from import_names(node)


def imported_when_run(path: Path) -> Iterator[str]:
    """The same without imports for annotations alone (`if TYPE_CHECKING`)."""
    names = set(imported(path))
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for inner in node.body:
                names -= set(import_names(inner))
    yield from sorted(names)


def import_names(node: ast.AST) -> list[str]:
    """Dotted names that one statement imports."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        assert not node.level, "imports are absolute"
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return []


def docstrings(path: Path) -> Iterator[tuple[str, str]]:
    """(place, docstring) of the module and of each class and function in it."""
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for node in ast.walk(tree(path)):
        if isinstance(node, kinds) and (text := ast.get_docstring(node)):
            yield place(path, node), text


def variables(path: Path) -> Iterator[tuple[str, str]]:
    """(place, name) of each variable, argument, attribute and field that is set."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.arg):
            yield place(path, node), node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield place(path, node), node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield place(path, node), node.attr
        elif isinstance(node, ast.ExceptHandler) and node.name:
            yield place(path, node), node.name


def place(path: Path, node: ast.AST) -> str:
    """`file:line`, as an editor opens it."""
    return f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}"
