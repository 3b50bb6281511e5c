"""What a finished run shows: words hidden in held-out text, and its guesses."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.data.source import PreparedRows
from bert_jax.predict import Model

SENTENCES, SHORTEST, LONGEST = 3, 8, 30


def hidden_words(
    source: PreparedRows, tokenizer: Any, count: int = SENTENCES
) -> Iterator[tuple[str, str]]:
    """(text with one word hidden, that word), from the starts of `count` rows.

    The word is the longest one that is a single token, so that it has a meaning.
    """
    mask = tokenizer.id_to_token(tokenizer.mask_id)
    for row in source.gather(np.arange(min(len(source), 20 * count)))["input_ids"]:
        end = int(np.argmax(row == tokenizer.sep_id))
        ids = row[1:end][:LONGEST].tolist()
        words = [tokenizer.id_to_token(i) for i in ids]
        whole = [
            word
            if word.isalpha() and not (words[k + 1 :] or [""])[0].startswith("##")
            else ""
            for k, word in enumerate(words)
        ]
        best = max(range(len(whole)), key=lambda k: len(whole[k]), default=0)
        if words[:1] == [] or words[0].startswith("##"):
            continue
        if len(ids) < SHORTEST or len(whole[best]) < 4:
            continue
        before, after = tokenizer.decode(ids[:best]), tokenizer.decode(ids[best + 1 :])
        yield f"{before} {mask} {after}".strip(), whole[best]
        count -= 1
        if not count:
            return


def closing_words(model: Model, source: PreparedRows, workdir: Path) -> str:
    """Three sentences with their guesses, and what to type next."""
    lines = []
    for text, word in hidden_words(source, model.tokenizer):
        guesses = model.fill_mask(text, k=3)[0]
        said = ", ".join(f"{token} {share:.0%}" for token, share in guesses)
        lines += [f"  {text}", f"    guesses: {said}; it was: {word}"]
    return "\n".join(
        [
            "",
            "Words hidden in text it has not seen:",
            *lines,
            "",
            f"The model is in {workdir}/model. Next:",
            f"  python -c \"import bert_jax; m = bert_jax.load('{workdir}/model'); "
            "print(m.fill_mask('the function returns a [MASK] .'))\"",
            f"  tensorboard --logdir={workdir}",
            "  python train.py --config.task.paths=YOUR_TEXT --workdir=runs/mine",
        ]
    )
