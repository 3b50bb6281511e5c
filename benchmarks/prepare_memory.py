"""Peak memory and speed of preparing a small and a large corpus.

    python -m benchmarks.prepare_memory --megabytes 4 400 --processes 2 [--text DIR]

The corpora are repetitions of one text, its sentences shuffled anew each time. The
difference of the peaks is what a larger corpus costs: it should not grow with it.
"""

import argparse
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bert_jax.data import corpus
from bert_jax.data.preparation import prepare
from bert_jax.data.records import RowConfig
from bert_jax.tokenizers import WordPiece


def write_repeated(path: Path, base: list[list[str]], megabytes: int) -> None:
    """Documents of shuffled sentences, one a line, until the file has its size."""
    sizes = [len(document) for document in base]
    sentences = [sentence for document in base for sentence in document]
    written = repetition = 0
    with open(path, "w", encoding="utf-8") as file:
        while written < megabytes * 1e6:
            random.Random(repetition).shuffle(sentences)
            rest = iter(sentences)
            for size in sizes:
                written += file.write("".join(f"{next(rest)}\n" for _ in range(size)))
                written += file.write("\n")
                if written >= megabytes * 1e6:
                    break
            repetition += 1


def measure(text: str, tokenizer: str, out: str, processes: int) -> None:
    """Prepares in this process, which is a fresh one, and prints what it took."""
    started = time.perf_counter()
    statistics = prepare(
        [text],
        out,
        tokenizer=WordPiece.from_vocab(tokenizer),
        recipe=RowConfig(),
        format="lines",
        processes=processes,
        progress=False,
    )
    seconds = time.perf_counter() - started
    parent, worker = (
        resource.getrusage(who).ru_maxrss / 1024
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    megabytes = Path(text).stat().st_size / 1e6
    total = parent + (processes * worker if processes > 1 else 0)
    print(
        f"{megabytes:6.0f} MB: at most {total:.0f} MiB (this process {parent:.0f}, "
        f"the largest worker {worker:.0f}), {seconds:.1f} s, "
        f"{megabytes / seconds:.2f} MB/s, efficiency "
        f"{statistics.splits['train'].efficiency:.3f}"
    )


def main() -> None:
    """Prints a line for each size, measured in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, nargs="+", default=[4, 60])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--text", nargs="*", default=[], help="default: python-docs")
    args = parser.parse_args()
    format = corpus.resolve(args.text)
    base = [corpus.sentences(d, format) for d in corpus.read(args.text, format)]
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        WordPiece.train((s for d in base for s in d), 8000).save(folder)
        for megabytes in args.megabytes:
            text = folder / f"{megabytes}.txt"
            write_repeated(text, base, megabytes)
            call = f"measure({str(text)!r}, {str(folder / 'vocab.txt')!r}, "
            call += f"{str(folder / f'data-{megabytes}')!r}, {args.processes})"
            code = f"from benchmarks.prepare_memory import measure; {call}"
            subprocess.run([sys.executable, "-c", code], check=True)


if __name__ == "__main__":
    main()
