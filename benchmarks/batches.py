"""Tokens a second from a prepared directory to batches, on one core.

    taskset -c 0 python -m benchmarks.batches DIRECTORY [--batch 32]

Padding does not count. Training starts only once a directory is prepared, with
`bert-jax prepare` or by `train.py`.
"""

import argparse
import itertools
import time

from bert_jax.data import pipeline
from bert_jax.data.prepared_rows import PreparedRows


def main() -> None:
    """Prints the rate of the pipeline, by the clock and by processor time."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rows", type=int, default=20_000)
    args = parser.parse_args()
    source = PreparedRows(args.directory)
    batches = pipeline.batches(source, batch_size=args.batch, seed=0)
    for _ in itertools.islice(batches, 8):
        pass
    wall, busy, tokens = time.perf_counter(), time.process_time(), 0
    for batch in itertools.islice(batches, args.rows // args.batch):
        tokens += int((batch["attention_mask"] > 0).sum())
    wall, busy = time.perf_counter() - wall, time.process_time() - busy
    print(
        f"rows of {source.layout.sequence_length}, batches of {args.batch}: "
        f"{tokens / wall / 1e6:.1f} M tokens/s ({tokens / busy / 1e6:.1f} M a second "
        "of processor time)"
    )


if __name__ == "__main__":
    main()
