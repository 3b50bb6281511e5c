"""Writes a model in another format. The input is a directory of transformers or
sentence-transformers, Google's bert_model.ckpt, parameters saved with Orbax, the work
directory of a run or one of its checkpoints, or a name on the Hub; it is detected.

Examples:
  bert-jax convert uncased_L-12_H-768_A-12 --out bert_base
  bert-jax convert bert_base --to google --out for_tf1
  bert-jax convert runs/mine/checkpoints/2000 --out step2000

transformers: config.json and model.safetensors. google: bert_config.json and
bert_model.ckpt, only for BERT, without pooling and names of labels. orbax: config.json
and the folder params.
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from bert_jax.cli.model_commands import MODEL

FORMATS = {"transformers": "save", "google": "save_tf1", "orbax": "save_orbax"}


def add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("model", metavar="DIR", help=MODEL)
    add("--out", required=True, type=Path, help="the new directory")
    add("--to", choices=FORMATS, default="transformers", help="default: %(default)s")


def run(args: Namespace) -> None:
    from bert_jax import files, pretrained

    files.check_unused(args.out)
    checkpoint = pretrained.load(args.model)
    getattr(pretrained, FORMATS[args.to])(args.out, checkpoint)
    head, config = type(checkpoint.head).__name__, checkpoint.head.encoder.config
    print(f"{args.out}: {head} on {config.model_type}, for {args.to}")
