"""The model that a verb works with."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# Where train.py puts its runs; the newest finished one is the default.
RUNS = Path("runs")

MODEL = "a directory, the work directory of a run, or a name on the Hugging Face Hub"


def arguments(add) -> None:
    """Flags of every verb that opens a model to use it."""
    add("--model", help=f"{MODEL}; default: the newest fitting one in runs/")
    add("--dtype", default="float32", help="of the compute: float32, bfloat16, float16")
    add("--batch-size", type=int, default=32, help="texts computed together")
    add("--strict", action="store_true", help="refuse texts that are too long")


def opened(args: Any, heads: Sequence[str]) -> Any:
    """The model that `--model` names, or the newest of a run that has such a head.

    Args:
      args: with the flags of `arguments`.
      heads: ends of the names of architectures that fit, as in config.json.
    """
    if args.batch_size < 1:
        raise ValueError(f"--batch-size {args.batch_size}; it must be at least 1")
    source = args.model or newest(heads)
    if source is None:
        raise ValueError(
            f"which model? Name it with --model: {MODEL}\n"
            f"(the default is the newest fitting one in {RUNS}/; here is none)"
        )
    if not args.model:
        print(f"model: {source}", file=sys.stderr)
    import bert_jax
    from bert_jax.inference import jitted

    jitted.use_compilation_cache()  # the next call finds them compiled
    model = bert_jax.load(source, args.dtype, args.strict)
    model.progress = False  # one bar over all texts is drawn here
    return model


def newest(heads: Sequence[str]) -> Path | None:
    """The newest `runs/*/model` with one of these heads."""
    fitting = [
        file for file in RUNS.glob("*/model/config.json") if _architecture(file, heads)
    ]
    newest = max(fitting, key=lambda file: file.stat().st_mtime, default=None)
    return newest and newest.parent


def _architecture(file, heads):
    try:
        named = json.loads(file.read_text("utf-8"))["architectures"][0]
    except (ValueError, LookupError, TypeError):
        return False
    return named.endswith(tuple(heads))
