"""The pages of the documentation and the blocks of code in them.

The title of a block says how it is used. Python without a title is run, in the order of
the page. `title="bert_jax/FILE.py: NAME"` marks a copy of that function or class,
`title="FILE.py"` a file that the page defines, and `title="prints"` the output of the
Python before it.
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
    """A block of code in a page, with the number of its first line."""

    page: str
    line: int
    language: str
    title: str
    text: str

    @property
    def is_run(self) -> bool:
        return self.language == "python" and not self.title


def blocks(page: str) -> list[Block]:
    """The blocks of a page, from top to bottom."""
    text = (ROOT / page).read_text("utf-8")
    return [
        Block(page, text[: match.start(3)].count("\n") + 1, *map(str, groups))
        for match in FENCE.finditer(text)
        for groups in [[x or "" for x in match.groups()]]
    ]


def source(title: str) -> str:
    """The source that `bert_jax/FILE.py: NAME` names; NAME is dotted for a method."""
    file, name = title.split(": ")
    text = (ROOT / file).read_text("utf-8")
    node: ast.AST = ast.parse(text)
    for part in name.split("."):
        matches = [x for x in node.body if getattr(x, "name", None) == part]
        assert matches, f"{title} does not exist"
        node = matches[0]
    first = min([node.lineno, *(x.lineno for x in node.decorator_list)])
    lines = text.splitlines(keepends=True)[first - 1 : node.end_lineno]
    return textwrap.dedent("".join(lines))


def updated(page: str) -> str:
    """The text of a page with current copies of the source that it shows."""
    text = (ROOT / page).read_text("utf-8")
    for block in blocks(page):
        if ".py: " in block.title:
            fence = f'```python title="{block.title}"\n'
            text = text.replace(fence + block.text, fence + source(block.title))
    return text


if __name__ == "__main__":  # run this after a change of source that pages show
    for name in PAGES:
        (ROOT / name).write_text(updated(name), "utf-8")
