"""Time of each kernel of a program, as JAX's profiler measured it."""

import collections
import gzip
import json
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

import jax


def table(run: Callable[[], object], most: int = 12) -> str:
    """Calls `run` once; seconds and number of its kernels by kind, most first.

    A kind is the name of an HLO instruction without its number: on CPUs `ynn_fusion` is
    a matrix product or a sum, `multiply_add_fusion` mostly the optimizer. Kernels that
    run side by side count each.
    """
    seconds, counts = collections.Counter(), collections.Counter()
    for event in _events(run):
        # Of a `while` or `cond` the kernels are events too.
        kind = re.sub(r"[.\d]+$", "", event.get("args", {}).get("hlo_op", ""))
        if kind and kind not in ("while", "cond", "call"):
            seconds[kind] += event["dur"] / 1e6
            counts[kind] += 1
    rows = [f"{'seconds':>8}{'kernels':>9}"]
    for kind, spent in seconds.most_common(most):
        rows.append(f"{spent:8.3f}{counts[kind]:9}  {kind}")
    kinds = seconds.most_common()[most:]
    rest = sum(spent for _, spent in kinds), sum(counts[kind] for kind, _ in kinds)
    return "\n".join([*rows, f"{rest[0]:8.3f}{rest[1]:9}  others"])


def _events(run):
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder, create_perfetto_trace=True):
            jax.block_until_ready(run())
        (path,) = Path(folder).rglob("perfetto_trace.json.gz")
        trace = json.loads(gzip.decompress(path.read_bytes()))
    return trace["traceEvents"] if isinstance(trace, dict) else trace
