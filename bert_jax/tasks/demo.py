"""What a finished run shows: words hidden in held-out text, and its guesses."""

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.data.prepared_rows import PreparedRows
from bert_jax.inference.model import Model

SENTENCES, SHORTEST, LONGEST, LEAST_LETTERS = 3, 8, 30, 4


def hidden_words(
    source: PreparedRows, tokenizer: Any, count: int = SENTENCES
) -> Iterator[tuple[str, str]]:
    """(text with one word hidden, that word), from the starts of `count` rows.

    The word is the longest one that is a single token, so that it has a meaning.
    """
    mask = tokenizer.id_to_token(tokenizer.mask_id)
    for row in source.gather(np.arange(min(len(source), 20 * count)))["input_ids"]:
        ids = row[: int(np.argmax(row == tokenizer.sep_id))][:LONGEST]
        ids = ids[ids != tokenizer.cls_id]
        words = [tokenizer.decode([i]).strip() for i in ids]
        hidden = hidden_word(words, tokenizer.is_continuation[ids])
        if hidden is None:
            continue
        before = tokenizer.decode(ids[:hidden]).strip()
        after = tokenizer.decode(ids[hidden + 1 :]).strip()
        yield f"{before} {mask} {after}".strip(), words[hidden]
        count -= 1
        if not count:
            return


def hidden_word(pieces: Sequence[str], goes_on: np.ndarray) -> int | None:
    """Which piece of a row's start to hide, or None for a row of no use.

    `goes_on` `[L]` says which pieces continue a word.
    """
    if len(pieces) < SHORTEST or goes_on[0]:
        return None
    more = np.append(goes_on[1:], False)
    lengths = [
        len(piece) if piece.isalpha() and not part else 0
        for piece, part in zip(pieces, goes_on | more, strict=True)
    ]
    longest = max(lengths)
    return lengths.index(longest) if longest >= LEAST_LETTERS else None


def closing_words(model: Model, source: PreparedRows) -> str:
    """Three sentences with their guesses."""
    lines = []
    for text, word in hidden_words(source, model.tokenizer):
        guesses = model.fill_mask(text, k=3)[0]
        said = ", ".join(f"{token} {share:.0%}" for token, share in guesses)
        lines += [f"  {text}", f"    guesses: {said}; it was: {word}"]
    return "\n".join(["", "Words hidden in text it has not seen:", *lines])


def next_words(workdir: Path, call: str) -> str:
    """Where the model is, and a command that makes a call to it."""
    code = f"import bert_jax; m = bert_jax.load('{workdir}/model'); print(m.{call})"
    # What a shell reads in double quotes needs the other kind.
    plain = not set(code) & set('"$`\\!')
    code = f'"{code}"' if plain else shlex.quote(code)
    return f"\nThe model is in {workdir}/model. Next:\n  python -c {code}"
