"""Texts that a finished run prints: a demonstration, and commands to try next."""

import dataclasses
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

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

    def next_steps(self, workdir: Path, shell: bool) -> str:
        """Text that names the model's directory and a call to try.

        With `shell` it is a command, otherwise Python.
        """
        ...


@dataclasses.dataclass(frozen=True)
class Call:
    """A call of a finished model to try, in Python and as a command.

    Attributes:
      method: of `Model`.
      arguments: of the method.
      text: the argument of the command.
      record: the object that the command reads, where a text is not enough.
      flags: of the command.

    >>> call = Call("classify", ("so good",), "so good")
    >>> print(call.command(Path("runs/mine")))
    bert-jax classify 'so good' --model runs/mine
    """

    method: str
    arguments: Sequence[Any]
    text: str = ""
    record: Mapping[str, Any] | None = None
    flags: Sequence[str] = ()

    def python(self, workdir: Path) -> str:
        """The call in Python."""
        arguments = ", ".join(map(repr, self.arguments))
        lines = f"model = bert_jax.load({str(workdir)!r})", f"model.{self.method}"
        return "\n  ".join(lines) + f"({arguments})"

    def command(self, workdir: Path) -> str:
        """The call in a shell."""
        name = ["bert-jax", self.method.replace("_", "-")]
        flags = [*self.flags, "--model", str(workdir)]
        if self.record is None and " " in self.text:
            return shlex.join([*name, self.text, *flags])
        # A text of one word would be the name of a file.
        record = self.record and json.dumps(self.record, ensure_ascii=False)
        pipe = f"echo {shlex.quote(record or self.text)}"
        return f"{pipe} | {shlex.join([*name, *flags])}"


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
        listed = ", ".join(f"{token!r} {share:.0%}" for token, share in guesses)
        lines += [f"  {text}", f"    guesses: {listed}; it was: {word!r}"]
    return "\n".join(["", "Words hidden in text it has not seen:", *lines])


def next_steps(workdir: Path, call: Call, shell: bool) -> str:
    """The model's directory, and a call to try."""
    line = call.command(workdir) if shell else call.python(workdir)
    return f"\nThe model is in {workdir}/model. Next:\n  {line}"


def excerpt(text: str, around: int = 0, length: int = 160) -> str:
    """The words of a text near a position; "…" marks what is left out.

    >>> excerpt("one two three four", around=9, length=9)
    '… two three …'
    """
    if len(text) <= length:
        return text
    start = max(0, min(around - length // 2, len(text) - length))
    end = start + length
    start = text.rfind(" ", 0, start) + 1 if start else 0
    words = text[start:end].rsplit(" ", 1)[0] if end < len(text) else text[start:]
    return f"{'… ' * (start > 0)}{words}{' …' * (end < len(text))}"
