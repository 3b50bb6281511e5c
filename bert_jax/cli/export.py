"""Writes a model as StableHLO with symbolic batch and length, through jax.export. What
it writes runs with jax and NumPy alone; its README.md has the lines that do.

Examples:
  bert-jax export DIR --out exported
  bert-jax export DIR --computes encoder --out exported
"""

from pathlib import Path

from bert_jax.cli import opening

COMPUTES = """encoder: hidden states [B, L, D]; embed: vectors [B, D]; model: what the
head gives. Default: embed where the model says how it pools, else model"""


def arguments(add) -> None:
    add("model", metavar="DIR", help=opening.MODEL)
    add("--out", required=True, type=Path, help="directory to make")
    add("--format", choices=("stablehlo",), default="stablehlo")
    add("--computes", choices=("model", "encoder", "embed"), help=COMPUTES)


def run(args) -> None:
    import bert_jax
    from bert_jax import files

    files.check_unused(args.out)
    model = bert_jax.load(args.model)
    bert_jax.export(model, args.out, args.computes)
    size = sum(file.stat().st_size for file in args.out.iterdir()) / 1e6
    print(f"{args.out}: {size:.0f} MB; its README.md says how to run it")
