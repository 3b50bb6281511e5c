"""A page in one file: it loads nothing else and runs only its own script."""

import functools
import html
import json
from importlib import resources
from pathlib import Path
from typing import Any

from bert_jax import files

# The least height of a frame in a notebook, in pixels; a user can resize it.
HEIGHT = 640


def build(title: str, scripts: tuple[str, ...], facts: Any, numbers: str = "") -> str:
    """The page, as HTML.

    Args:
      title: the title of the window.
      scripts: names of files in `static`, in order; they share one scope.
      facts: a value for JSON. It becomes text, never markup.
      numbers: arrays, see `packing.pack`.
    """
    return _static("page.html").format(
        title=html.escape(title),
        style=_static("page.css"),
        # Within a script element only `<` can end it.
        facts=json.dumps(facts, allow_nan=False).replace("<", "\\u003c"),
        numbers=numbers,
        script="\n".join(map(_static, scripts)),
    )


def frame(page: str, height: int = HEIGHT) -> str:
    """The page in an iframe, so that its names and styles do not affect a notebook."""
    height = max(height, HEIGHT)
    style = f"width:100%;height:{height}px;border:0;resize:vertical;overflow:auto"
    return (
        f'<iframe sandbox="allow-scripts" style="{style}" '
        f'srcdoc="{html.escape(page)}"></iframe>'
    )


def write(path: str | Path, page: str) -> None:
    """Writes the page into a file."""
    files.write_text(files.local_path(path), page)


@functools.cache
def _static(name: str) -> str:
    return (resources.files("bert_jax.views") / "static" / name).read_text("utf-8")
