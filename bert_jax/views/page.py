"""A page in one file: it asks for nothing, and runs nothing but its own script."""

import functools
import html
import json
from importlib import resources
from pathlib import Path
from typing import Any

# The least height of a frame in a notebook, in pixels; its lower corner can be drawn.
HEIGHT = 640


def built(title: str, scripts: tuple[str, ...], facts: Any, numbers: str = "") -> str:
    """The page, as HTML.

    Args:
      title: of the window.
      scripts: names of files in `static`, in order; they share one scope.
      facts: what JSON can hold. It becomes text, never markup.
      numbers: see `packed`.
    """
    return _static("page.html").format(
        title=html.escape(title),
        style=_static("page.css"),
        # Within a script element only `<` can end it.
        facts=json.dumps(facts, allow_nan=False).replace("<", "\\u003c"),
        numbers=numbers,
        script="\n".join(map(_static, scripts)),
    )


def framed(page: str, height: int = HEIGHT) -> str:
    """The page in a frame of its own: no name or style of it meets the notebook's."""
    height = max(height, HEIGHT)
    style = f"width:100%;height:{height}px;border:0;resize:vertical;overflow:auto"
    return (
        f'<iframe sandbox="allow-scripts" style="{style}" '
        f'srcdoc="{html.escape(page)}"></iframe>'
    )


def write(path: str | Path, page: str) -> None:
    """Writes the page into a file."""
    Path(path).write_text(page, encoding="utf-8")


@functools.cache
def _static(name: str) -> str:
    return (resources.files("bert_jax.views") / "static" / name).read_text("utf-8")
