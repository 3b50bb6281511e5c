"""The page that shows one word in many contexts; static/word_map.js draws it."""

from collections.abc import Sequence

import numpy as np

from bert_jax.views import page
from bert_jax.views.measures import mean_cosine, principal_components

SCRIPTS = ("page.js", "charts.js", "word_map.js")
# Characters of the text that are shown on either side of the word.
AROUND = 120
# Heights in pixels: the charts with the note, and each of the first contexts.
CHARTS, CONTEXT, SHOWN = 575, 26, 20


def html(
    word: str,
    texts: Sequence[str],
    spans: np.ndarray,
    groups: Sequence[str] | None,
    vectors: np.ndarray,
    others: np.ndarray,
) -> str:
    """The page as HTML; see `WordMap` for the arguments."""
    components = [principal_components(x) for x in vectors]
    facts = {
        "word": word,
        "contexts": [
            (text[max(0, a - AROUND) : a], text[a:b], text[b : b + AROUND])
            for text, (a, b) in zip(texts, spans, strict=True)
        ],
        "groups": groups,
        "points": [points.round(4).tolist() for points, _ in components],
        "shares": [shares.round(4).tolist() for _, shares in components],
        "own": np.array([mean_cosine(x) for x in vectors]).round(4).tolist(),
        "others": others.round(4).tolist(),
    }
    return page.build(f"{word} in {len(texts)} contexts", SCRIPTS, facts)


def height(contexts: int) -> int:
    """The height of a frame for so many contexts, in pixels."""
    return CHARTS + CONTEXT * min(contexts, SHOWN)
