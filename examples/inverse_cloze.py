"""Pairs to adapt sentence vectors to a collection without questions or judgements.

    python -m examples.inverse_cloze corpus.jsonl runs/cloze

writes train.jsonl and dev.jsonl for `bert-jax finetune embed`: a sentence of a document
as the anchor, the rest of it (two sentences or more) as the positive: the inverse cloze
task (Lee et al., 2019, section 4). The sentence stays in one document of ten, so that
equal words count, too.
"""

import argparse
import json
import random
import re
from collections.abc import Iterable
from pathlib import Path

# Sentences of a document that become anchors, and how many words they have.
ANCHORS, WORDS = 2, range(5, 41)
STAYS, HELD_OUT = 0.1, 200


def pairs(texts: Iterable[str], seed: int = 0) -> list[dict[str, str]]:
    """Rows with `anchor` and `positive`, in random order.

    >>> text = "Here are five words first. And five other words follow. Done."
    >>> sorted(row["anchor"] for row in pairs([text]))
    ['And five other words follow.', 'Here are five words first.']
    """
    draw = random.Random(seed)
    rows = []
    for text in texts:
        sentences = re.split(r"(?<=[.?!]) +", text)
        long = [i for i, x in enumerate(sentences) if len(x.split()) in WORDS]
        for i in draw.sample(long, min(ANCHORS, len(long))):
            rest = sentences[:i] + sentences[i + 1 :]
            if len(rest) > 1:
                positive = text if draw.random() < STAYS else " ".join(rest)
                rows.append({"anchor": sentences[i], "positive": positive})
    draw.shuffle(rows)
    return rows


def main() -> None:
    """Reads the command line and writes both files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", help="a file with an object with `text` in each line")
    parser.add_argument("directory", type=Path)
    args = parser.parse_args()
    with open(args.corpus) as file:
        rows = pairs(json.loads(line)["text"] for line in file)
    args.directory.mkdir(parents=True, exist_ok=True)
    for name, part in (("dev", rows[:HELD_OUT]), ("train", rows[HELD_OUT:])):
        lines = "".join(f"{json.dumps(row)}\n" for row in part)
        (args.directory / f"{name}.jsonl").write_text(lines)
    print(f"{len(rows):,} pairs")


if __name__ == "__main__":
    main()
