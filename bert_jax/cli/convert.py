"""Writes a model in another format. What is read is found out: a directory of
transformers or sentence-transformers, Google's bert_model.ckpt, parameters saved with
Orbax, the work directory of a run or one of its checkpoints, or a name on the Hub.

Examples:
  bert-jax convert uncased_L-12_H-768_A-12 --out bert_base
  bert-jax convert bert_base --to google --out for_tf1
  bert-jax convert runs/mine/checkpoints/2000 --out step2000

transformers: config.json and model.safetensors. google: bert_config.json and
bert_model.ckpt, for BERT alone; pooling and names of labels have no place there. orbax:
config.json and the folder params.
"""

from pathlib import Path

from bert_jax.cli import opening

FORMATS = {"transformers": "save", "google": "save_tf1", "orbax": "save_orbax"}


def arguments(add) -> None:
    add("model", metavar="DIR", help=opening.MODEL)
    add("--out", required=True, type=Path, help="directory to make")
    add("--to", choices=FORMATS, default="transformers", help="default: %(default)s")


def run(args) -> None:
    from bert_jax import files, pretrained

    files.check_unused(args.out)
    checkpoint = pretrained.load(args.model)
    getattr(pretrained, FORMATS[args.to])(args.out, checkpoint)
    head, config = type(checkpoint.head).__name__, checkpoint.head.encoder.config
    print(f"{args.out}: {head} on {config.model_type}, for {args.to}")
