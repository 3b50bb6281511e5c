"""The pages of the documentation and the blocks of code in them.

A block says in its title what it is. Without one, Python is run, in the order of the
page. `title="bert_jax/FILE.py: NAME"` is the source of that function or class, as it
stands there; `title="FILE.py"` is a file that the page makes; `title="prints"` is what
the Python before it prints.
"""

import ast
import re
import textwrap
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
PAGES = ["README.md", *(f"docs/{x.name}" for x in sorted((ROOT / "docs").glob("*.md")))]

FENCE = re.compile(
    r'^```(\w*)(?:[^\n"]*title="([^"]*)")?[^\n]*\n(.*?)^```$', re.S | re.M
)


class Block(NamedTuple):
    """Code of a page, and the number of its first line."""

    page: str
    line: int
    language: str
    title: str
    text: str

    @property
    def is_run(self) -> bool:
        return self.language == "python" and not self.title


def blocks(page: str) -> list[Block]:
    """The blocks of a page, from the top."""
    text = (ROOT / page).read_text("utf-8")
    return [
        Block(page, text[: found.start(3)].count("\n") + 1, *map(str, groups))
        for found in FENCE.finditer(text)
        for groups in [[x or "" for x in found.groups()]]
    ]


def source(title: str) -> str:
    """What `bert_jax/FILE.py: NAME` names; NAME is dotted for a method."""
    file, name = title.split(": ")
    text = (ROOT / file).read_text("utf-8")
    node: ast.AST = ast.parse(text)
    for part in name.split("."):
        named = [x for x in node.body if getattr(x, "name", None) == part]
        assert named, f"{title} is not there"
        node = named[0]
    first = min([node.lineno, *(x.lineno for x in node.decorator_list)])
    lines = text.splitlines(keepends=True)[first - 1 : node.end_lineno]
    return textwrap.dedent("".join(lines))


def shown_anew(page: str) -> str:
    """The text of a page, with the source it shows as it is now."""
    text = (ROOT / page).read_text("utf-8")
    for block in blocks(page):
        if ".py: " in block.title:
            fence = f'```python title="{block.title}"\n'
            text = text.replace(fence + block.text, fence + source(block.title))
    return text


if __name__ == "__main__":  # after a change of source that pages show
    for name in PAGES:
        (ROOT / name).write_text(shown_anew(name), "utf-8")
