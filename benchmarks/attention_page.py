r"""Time that the page of attention takes to open and to draw, in headless Chromium.

    python -m benchmarks.attention_page

Each text is one of random vectors, with as many layers and heads as MiniLM, so that
every token looks at every other. Chromium draws without a GPU. A time ends when the
second frame after the click is on the screen; the least of `--rounds` counts.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

from bert_jax.views import attention_page
from tests import browser

# The views in the order of their tabs.
TABS = ("all heads", "one head", "query and key", "layers")
# One head as lines, of the chosen token and then of all.
LINES = {
    "lines of a token": """
        const label = [...document.querySelectorAll("label")]
          .find((label) => label.textContent.startsWith("As"));
        const list = label.querySelector("select");
        list.selectedIndex = 0;
        list.dispatchEvent(new Event("change"));""",
    "lines of all": "document.querySelector('.passage [aria-pressed=true]').click()",
}


def example(length: int, layers: int = 6, heads: int = 12, size: int = 32) -> dict:
    """Arguments of `attention_page.html` for a text of `length` tokens."""
    draw = np.random.default_rng(0)
    shape = (layers, heads, length, size)
    queries, keys = draw.normal(size=(2, *shape)).astype(np.float32) * 1.5
    scores = queries @ np.swapaxes(keys, 2, 3) / size**0.5
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    tokens = ["[CLS]", *(f"word{i}" for i in range(length - 2)), "[SEP]"]
    return {"tokens": tokens, "weights": weights, "queries": queries, "keys": keys}


def timed(chromium: browser.Page, action: str) -> float:
    """Seconds from an action, in JavaScript, until its second frame is drawn."""
    chromium.picture()
    start = time.perf_counter()
    chromium.value(f"(() => {{ {action} }})()")
    chromium.picture()
    return time.perf_counter() - start


def measure(chromium: browser.Page, page: Path) -> dict[str, float]:
    """Seconds by what is done, on one page."""
    start = time.perf_counter()
    chromium.open(page)
    chromium.picture()
    seconds = {"open": time.perf_counter() - start}
    for number, name in enumerate(TABS):
        tab = f"document.querySelectorAll('nav button')[{number}].click()"
        seconds[name] = timed(chromium, tab)
    chromium.value("document.querySelectorAll('nav button')[1].click()")
    return seconds | {name: timed(chromium, do) for name, do in LINES.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, nargs="+", default=[16, 152, 256, 512])
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    titles = ("tokens", "MB", "open", *TABS, *LINES)
    print("| " + " | ".join(titles) + " |\n" + "|---" * len(titles) + "|")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        page, profile = Path(folder, "page.html"), Path(folder, "profile")
        profile.mkdir()
        with browser.opened(profile) as chromium:
            chromium.resize()
            for length in args.tokens:
                page.write_text(attention_page.html(**example(length)), "utf-8")
                rounds = [measure(chromium, page) for _ in range(args.rounds)]
                least = [min(x[name] for x in rounds) for name in rounds[0]]
                megabytes = page.stat().st_size / 1e6
                cells = [f"{megabytes:.1f}", *(f"{x:.2f} s" for x in least)]
                print(f"| {length} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
