"""Writes the API reference, docs/reference/, from signatures and docstrings.

Run it before the site is built: python docs/reference.py
"""

import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "docs" / "reference"
ROOMS = (
    *("bert_jax", "bert_jax.models", "bert_jax.tokenizers", "bert_jax.pretrained"),
    *("bert_jax.objectives", "bert_jax.tasks", "bert_jax.training"),
    *("bert_jax.inference", "bert_jax.views", "bert_jax.metrics", "bert_jax.data"),
)

# Sections of a docstring that have a heading of their own.
SECTIONS = ("Args", "Attributes", "Returns", "Yields", "Raises")


def write_pages() -> None:
    """A page for each room, and no others."""
    PAGES.mkdir(exist_ok=True)
    for old in PAGES.glob("*.md"):
        old.unlink()
    for room in ROOMS:
        (PAGES / f"{room}.md").write_text(page(room), "utf-8")


def page(room: str) -> str:
    """The reference of a room as Markdown."""
    module = importlib.import_module(room)
    parts = [f"# {room}", markdown(module)]
    for name in public_names(module):
        member = getattr(importlib.import_module(room), name, None)
        if member is None:
            member = importlib.import_module(f"{room}.{name}")
        parts += entry(f"{room}.{name}", name, member)
    return "\n\n".join(parts) + "\n"


def public_names(module: ModuleType) -> list[str]:
    """`__all__`, or what the module itself defines without an underscore."""
    if names := getattr(module, "__all__", None):
        return sorted(names)
    return sorted(
        name
        for name, x in vars(module).items()
        if not name.startswith("_")
        and (isinstance(x, type) or inspect.isfunction(x))
        and x.__module__ == module.__name__
    )


def entry(path: str, name: str, member: object) -> Iterator[str]:
    """The blocks of one public name; a class is followed by its methods."""
    yield f"## {name}"
    if isinstance(member, ModuleType):
        page = f"{member.__name__}.md"
        linked = f" [Its page]({page})." if member.__name__ in ROOMS else ""
        yield f"The module `{path}`.{linked}"
        if member.__name__ in ROOMS:
            yield escaped((inspect.getdoc(member) or "").split("\n")[0])
            return
    elif callable(member):
        yield signature(name, member)
    yield markdown(member)
    for method in methods(member):
        yield f"### {name}.{method}"
        function = inspect.getattr_static(member, method)
        if not isinstance(function, property):
            yield signature(f"{name}.{method}", getattr(member, method))
        yield markdown(getattr(member, method))


def methods(member: object) -> list[str]:
    """Names with a docstring that a class, or a module that has no page, defines."""
    if isinstance(member, ModuleType):
        return [x for x in public_names(member) if getattr(member, x).__doc__]
    if not isinstance(member, type):
        return []
    kinds = (property, classmethod, staticmethod)
    return [
        name
        for name, x in vars(member).items()
        if not name.startswith("_")
        and (isinstance(x, kinds) or inspect.isfunction(x))
        and getattr(member, name).__doc__
    ]


def signature(name: str, function: Callable) -> str:
    """A block with the call, one parameter a line where it is long."""
    try:
        text = str(inspect.signature(function))
    except ValueError:
        return f"```python\n{name}\n```"
    # Defaults that print the address of an object, and the quotes of annotations.
    text = re.sub(r"<(?:function |object |class ')?([\w.]+)[^>]*>", r"\1", text)
    text = re.sub(r"(: |-> )'([^']*)'", r"\1\2", text)
    text = re.sub(r"\b(?:collections\.abc|typing|pathlib\._local|pathlib)\.", "", text)
    if len(name + text) > 88:
        text = split_parameters(text)
    return f"```python\n{name}{text}\n```"


def split_parameters(text: str) -> str:
    """A signature with each parameter on its line."""
    depth, parts, part = 0, [], ""
    for place, x in enumerate(text):
        depth += (x in "([{") - (x in ")]}")
        if depth == 0:
            rest = text[place:]
            break
        if x == "," and depth == 1:
            parts, part = [*parts, part.strip()], ""
        elif depth > 1 or x != "(":
            part += x
    lines = "".join(f"    {x},\n" for x in [*parts, part.strip()] if x)
    return f"(\n{lines}{rest}" if lines else text


def markdown(member: object) -> str:
    """A docstring as Markdown: lists of arguments, and blocks for examples."""
    lines: list[str] = []
    for block in re.split(r"\n\s*\n", inspect.getdoc(member) or ""):
        first = block.split("\n")[0]
        if ">>>" in first:
            lines += [f"```python\n{inspect.cleandoc(block)}\n```"]
        elif first.rstrip(":") in SECTIONS and first.endswith(":"):
            lines += [f"**{first.rstrip(':')}**", items(block.split("\n")[1:])]
        elif block.startswith("    "):
            lines += [f"```text\n{block}\n```"]
        else:
            lines += [escaped(block)]
    return "\n\n".join(lines)


def items(rows: list[str]) -> str:
    """Lines `name: text`, and those that continue them, as a list."""
    text = inspect.cleandoc("\n" + "\n".join(rows))
    text = re.sub(r"\n[ ]+", " ", text)
    return "\n".join(
        "- " + re.sub(r"^([\w*, ]+): ", r"`\1`: ", escaped(line))
        for line in text.split("\n")
    )


def escaped(text: str) -> str:
    """Text whose angle brackets and brackets are no markup, outside of code."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(
        x if x.startswith("`") else x.replace("<", "&lt;").replace("[", "\\[")
        for x in parts
    )


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    write_pages()
