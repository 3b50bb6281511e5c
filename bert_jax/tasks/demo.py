"""Texts that a finished run prints: a demonstration, and commands to try next."""

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np

from bert_jax.data.prepared_rows import PreparedRows
from bert_jax.inference.model import Model
from bert_jax.tokenizers import Tokenizer

# Number of sentences; lengths of a sentence in tokens and of a masked word in letters.
SENTENCES, MIN_TOKENS, MAX_TOKENS, MIN_LETTERS = 3, 8, 30, 4


@runtime_checkable
class Demonstrated(Protocol):
    """A task that has something to print when its run is over; it need not."""

    def demo(self, model: Model, workdir: Path) -> str:
        """Text that shows the finished model at work; "" for none."""
        ...

    def next_steps(self, workdir: Path) -> str:
        """Text that names the model's directory and a command to try."""
        ...


def masked_words(
    source: PreparedRows, tokenizer: Tokenizer, count: int = SENTENCES
) -> Iterator[tuple[str, str]]:
    """(text with a masked word, that word), from the starts of `count` rows.

    The word is the longest one that is a single token.
    """
    mask = tokenizer.id_to_token(tokenizer.mask_id)
    for row in source.gather(np.arange(min(len(source), 20 * count)))["input_ids"]:
        ids = row[: int(np.argmax(row == tokenizer.sep_id))][:MAX_TOKENS]
        ids = ids[ids != tokenizer.cls_id]
        words = [tokenizer.decode([i]).strip() for i in ids]
        position = choose_word(words, tokenizer.is_continuation[ids])
        if position is None:
            continue
        before = tokenizer.decode(ids[:position]).strip()
        after = tokenizer.decode(ids[position + 1 :]).strip()
        yield f"{before} {mask} {after}".strip(), words[position]
        count -= 1
        if not count:
            return


def choose_word(pieces: Sequence[str], continues: np.ndarray) -> int | None:
    """The position of the piece to mask in a text; None if the text has no good one.

    `continues` `[L]` is true for pieces that continue a word.
    """
    if len(pieces) < MIN_TOKENS or continues[0]:
        return None
    continued = np.append(continues[1:], False)
    lengths = [
        len(piece) if piece.isalpha() and not is_part else 0
        for piece, is_part in zip(pieces, continues | continued, strict=True)
    ]
    longest = max(lengths)
    return lengths.index(longest) if longest >= MIN_LETTERS else None


def fill_mask_demo(model: Model, source: PreparedRows) -> str:
    """Three sentences with a masked word, and the model's guesses."""
    lines: list[str] = []
    for text, word in masked_words(source, model.check_tokenizer()):
        guesses = model.fill_mask(text, k=3)[0]
        listed = ", ".join(f"{token} {share:.0%}" for token, share in guesses)
        lines += [f"  {text}", f"    guesses: {listed}; it was: {word}"]
    return "\n".join(["", "Words hidden in text it has not seen:", *lines])


def next_steps(workdir: Path, call: str) -> str:
    """The model's directory, and a command that makes a call to it."""
    code = f"import bert_jax; m = bert_jax.load('{workdir}/model'); print(m.{call})"
    # Characters that a shell expands in double quotes need single quotes.
    plain = not set(code) & set('"$`\\!')
    code = f'"{code}"' if plain else shlex.quote(code)
    return f"\nThe model is in {workdir}/model. Next:\n  python -c {code}"
