"""Megabytes of text a second: preparation, and the `tokenizers` library alone.

    python -m benchmarks.prepare_rate TEXT VOCAB [--rounds 3]

Preparation reads, splits sentences, cuts them into pieces, makes pairs, packs and
writes; `tokenizers` cuts the same documents and does nothing else. Both have as many
processes, or threads, and take turns in processes of their own. TEXT is a file,
VOCAB a vocab.txt.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def prepared(text: str, vocab: str, processes: int) -> None:
    """Rows as for BERT's first phase, from each text once."""
    from bert_jax.data.preparation import prepare
    from bert_jax.data.records import RowConfig
    from bert_jax.tokenizers import WordPiece

    with tempfile.TemporaryDirectory() as folder:
        prepare(
            [text],
            Path(folder) / "rows",
            tokenizer=WordPiece.from_vocab(vocab),
            recipe=RowConfig(),
            processes=processes,
            shard_bytes=1_000_000,
            progress=False,
        )


def cut(text: str, vocab: str, processes: int) -> None:
    """The same documents through `encode_batch`, on so many threads."""
    import tokenizers

    from bert_jax.data import corpus

    documents = ["\n".join(document) for document in corpus.read([text])]
    library = tokenizers.BertWordPieceTokenizer(vocab)
    start = time.perf_counter()
    for i in range(0, len(documents), 256):
        library.encode_batch(documents[i : i + 256], add_special_tokens=False)
    print(json.dumps(time.perf_counter() - start))


WAYS = {"prepare": prepared, "tokenizers": cut}


def main() -> None:
    """Prints a line for each number of processes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text", type=Path)
    parser.add_argument("vocab")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--turn", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.turn:
        name, processes = args.turn
        start = time.perf_counter()
        WAYS[name](str(args.text), args.vocab, int(processes))
        if name == "prepare":
            print(json.dumps(time.perf_counter() - start))
        return
    size = args.text.stat().st_size / 1e6
    for processes in (1, 2):
        rates_by_way = {name: [] for name in WAYS}
        for _ in range(args.rounds):
            for name in WAYS:
                rates_by_way[name].append(size / turn(name, processes))
        rates = {
            name: statistics.median(values) for name, values in rates_by_way.items()
        }
        print(
            f"{processes} of each: prepare {rates['prepare']:.2f} MB/s, tokenizers "
            f"{rates['tokenizers']:.2f} MB/s, ratio "
            f"{rates['prepare'] / rates['tokenizers']:.2f}",
            flush=True,
        )


def turn(name: str, processes: int) -> float:
    """Seconds of one turn in a process of its own, without what it imports."""
    command = [sys.executable, "-m", "benchmarks.prepare_rate", *sys.argv[1:]]
    done = subprocess.run(
        [*command, "--turn", name, str(processes)],
        env={**os.environ, "RAYON_NUM_THREADS": str(processes)},
        stdout=subprocess.PIPE,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    main()
