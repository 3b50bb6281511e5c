"""The parts of commands that use a model: its flags, its opening, and the loop."""

import itertools
import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bert_jax.cli import records
from bert_jax.cli.records import Record

if TYPE_CHECKING:
    from flax import linen as nn

    from bert_jax.inference.model import Model

# train.py writes its runs here; the newest finished one is the default.
RUNS = Path("runs")

MODEL = "a directory, the work directory of a run, or a name on the Hugging Face Hub"
FORMATS = ("text", "jsonl")
TEXT_FIELD = "the field of JSONL with the text"


def add_model_arguments(parser: ArgumentParser) -> None:
    """Flags of every command that opens a model to use it."""
    add = parser.add_argument
    add("--model", help=f"{MODEL}; default: the newest that fits in runs/")
    add("--dtype", default="float32", help="float32, bfloat16 or float16, to compute")
    add("--batch-size", type=int, default=32, help="texts computed together")
    add("--max-length", type=int, help="tokens in a row; default: the model's own")
    add("--strict", action="store_true", help="make a text that is too long an error")


def add_arguments(parser: ArgumentParser, formats: Sequence[str] = FORMATS) -> None:
    """Flags of every command that has a result for each record."""
    add = parser.add_argument
    add("inputs", nargs="*", metavar="INPUT", help=records.INPUT)
    add_model_arguments(parser)
    add("--out", type=Path, help="a file, complete when it appears; default: stdout")
    add("--format", choices=formats, help="default: by --out; text on a terminal")


def run(
    args: Namespace,
    *,
    heads: Sequence[str],
    check_head: Callable[["nn.Module"], None],
    predict: Callable[["Model", list[Record]], Iterable[Any]],
    as_json: Callable[[Any], Any],
    as_text: Callable[[Record, Any], str],
    work: str,
    field: str = "prediction",
    fields: records.Fields | None = None,
) -> None:
    """Reads, computes and writes in blocks, so that memory does not grow with the text.

    Args:
      args: the flags of `add_arguments`.
      heads: see `open_model`.
      check_head: raises ValueError for a head that the command cannot use.
      predict: a model and records -> a result for each.
      work: the name of the progress bar, such as "embedding".
      field, as_json, as_text: see `records.writer`.
      fields: the columns of tables; None: those of `fields_of`.
    """
    from bert_jax.data.progress import Bar, Part
    from bert_jax.inference import batching

    inputs = args.inputs or ["-"]
    # Both raise before the model is opened.
    records.check_out(args.out)
    records.format_of(args, field)
    model = open_model(args, heads)
    check_head(model.head)
    records.announce_terminal(inputs)
    size = batching.WINDOW * args.batch_size
    bar = Bar(records.count(inputs), "texts", work)
    with records.writer(args, field, as_json, as_text) as write, bar:
        for block in _blocks(records.read(inputs, fields or fields_of(args)), size):
            model.progress = part = Part(bar, len(block))
            for record, result in zip(block, predict(model, block), strict=True):
                write(record, result)
            part.finish()


def fields_of(args: Namespace) -> records.Fields:
    """The columns of tables that --text and --pair name."""
    named = {x: getattr(args, x, x) for x in ("text", "pair")}
    text, pair = (None if name == x else name for x, name in named.items())
    return records.Fields(text, pair)


def open_model(args: Namespace, heads: Sequence[str]) -> "Model":
    """The model of `--model`, or of the newest run that has one of the heads.

    Args:
      args: the flags of `add_model_arguments`.
      heads: endings of the architectures in config.json that the command can use.
    """
    if args.batch_size < 1:
        raise ValueError(f"--batch-size {args.batch_size}; it must be at least 1")
    source = args.model or newest(heads)
    if source is None:
        raise ValueError(
            f"no model was named; use --model: {MODEL}\n"
            f"(the default is the newest that fits in {RUNS}/, and there is none)"
        )
    if not args.model:
        print(f"model: {source}", file=sys.stderr)
    import bert_jax
    from bert_jax.inference import jitted

    jitted.use_compilation_cache()  # the next call needs no compilation
    model = bert_jax.load(source, args.dtype, args.strict)
    set_max_length(model, args.max_length)
    return model


def set_max_length(model: "Model", length: int | None) -> None:
    """Sets the tokens in a row, a number that the model has positions for."""
    positions = model.config.max_length
    if length is not None and not 4 <= length <= positions:
        raise ValueError(
            f"--max-length {length}; the model has {positions} positions, choose from "
            f"4 to {positions}"
        )
    model.max_length = length or model.max_length


def newest(heads: Sequence[str]) -> Path | None:
    """The newest `runs/*/model` with one of these heads."""
    fitting = [file for file in RUNS.glob("*/model/config.json") if _fits(file, heads)]
    newest = max(fitting, key=lambda file: file.stat().st_mtime, default=None)
    return newest and newest.parent


def titled(title: str, lines: Sequence[str]) -> str:
    """Indented lines below a title."""
    return "\n".join([title, *(f"  {line}" for line in lines)])


def _fits(file: Path, heads: Sequence[str]) -> bool:
    try:
        architecture = json.loads(file.read_text("utf-8"))["architectures"][0]
    except (ValueError, LookupError, TypeError):
        return False
    return architecture.endswith(tuple(heads))


def _blocks(stream: Iterator[Record], size: int) -> Iterator[list[Record]]:
    """Lists of up to `size` records."""
    while block := list(itertools.islice(stream, size)):
        yield block
