r"""Texts to vectors: this library and sentence-transformers, taking turns.

    python -m benchmarks.embed MODEL TEXTS [--count 2000] [--rounds 3] [--cache DIR] \
        [--dtype bfloat16]

MODEL is a directory of sentence-transformers, TEXTS a file with a text a line (what
follows a tab is cut off). Each turn is a process of its own: the thread pools of two
libraries in one process slow each other down. `--cache` keeps our compiled programs.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

LIBRARIES = ("bert_jax", "sentence_transformers")


def main() -> None:
    """Prints a line for each round, and what starting up costs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("texts", type=Path)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtype", default="float32", help="of both")
    parser.add_argument("--cache", help="where compiled programs are kept")
    parser.add_argument("--turn", choices=LIBRARIES, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.turn:
        print(json.dumps(turn(args)))
        return
    for _ in range(args.rounds):
        ours, theirs = (run(library) for library in LIBRARIES)
        print(
            f"{ours['rate']:.0f} texts/s against {theirs['rate']:.0f} "
            f"({ours['rate'] / theirs['rate']:.2f} times); one text "
            f"{ours['latency']:.1f} ms against {theirs['latency']:.1f}; load "
            f"{ours['load']:.2f} s against {theirs['load']:.2f}; first time "
            f"{ours['first']:.1f} s against {theirs['first']:.1f}"
        )


def run(library: str) -> dict[str, float]:
    """One turn in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.embed", *sys.argv[1:]]
    done = subprocess.run(
        [*command, "--turn", library], stdout=subprocess.PIPE, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def turn(args: argparse.Namespace) -> dict[str, float]:
    """Seconds to load and for the first pass; texts a second; ms for one text."""
    lines = args.texts.read_text("utf-8").splitlines()[: args.count]
    texts = [line.split("\t")[0] for line in lines]
    load = {"bert_jax": open_ours, "sentence_transformers": open_theirs}[args.turn]
    embed, seconds = load(args)
    first = timed(lambda: embed(texts))
    embed(texts[0])
    return {
        "load": seconds,
        "first": first,
        "rate": len(texts) / min(timed(lambda: embed(texts)) for _ in range(3)),
        "latency": 1e3 * min(timed(lambda: embed(texts[0])) for _ in range(20)),
    }


def open_ours(args: argparse.Namespace) -> tuple[Callable[[Any], Any], float]:
    """Our model, and the seconds it took to load after imports."""
    from bert_jax.inference import jitted
    from bert_jax.inference import model as predict

    if args.cache:
        jitted.use_compilation_cache(args.cache)
    start = time.perf_counter()
    model = predict.load(args.model, dtype=args.dtype)
    return model.embed, time.perf_counter() - start


def open_theirs(args: argparse.Namespace) -> tuple[Callable[[Any], Any], float]:
    """The same of sentence-transformers."""
    import sentence_transformers
    import torch

    torch.set_num_threads(args.threads)
    start = time.perf_counter()
    model = sentence_transformers.SentenceTransformer(
        str(args.model), device="cpu", model_kwargs={"dtype": args.dtype}
    )
    return model.encode, time.perf_counter() - start


def timed(call: Callable[[], Any]) -> float:
    """Seconds of a call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
