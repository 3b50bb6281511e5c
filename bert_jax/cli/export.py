"""Writes a model as StableHLO with symbolic batch and length, through jax.export. The
export needs only jax and NumPy to run; its README.md has the code.

Examples:
  bert-jax export DIR --out exported
  bert-jax export DIR --computes encoder --out exported
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from bert_jax.cli.model_commands import MODEL

COMPUTES = """encoder: hidden states [B, L, D]; embed: vectors [B, D]; model: the output
of the head. Default: embed for a model with a pooling, else model"""


def add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("model", metavar="DIR", help=MODEL)
    add("--out", required=True, type=Path, help="the new directory")
    add("--format", choices=("stablehlo",), default="stablehlo")
    add("--computes", choices=("model", "encoder", "embed"), help=COMPUTES)


def run(args: Namespace) -> None:
    import bert_jax
    from bert_jax import files

    files.check_unused(args.out)
    model = bert_jax.load(args.model)
    bert_jax.export(model, args.out, args.computes)
    size = sum(file.stat().st_size for file in args.out.iterdir()) / 1e6
    print(f"{args.out}: {size:.0f} MB; see its README.md to run it")
