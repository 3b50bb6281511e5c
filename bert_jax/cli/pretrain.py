"""Goes on pre-training a model on your own text; OUT/model is what comes out.

Examples:
  bert-jax pretrain my_text/ --model DIR --out runs/mine
  bert-jax fill-mask "a sentence with a [MASK] ." --model runs/mine

The same command goes on where it was stopped. `train.py` starts from nothing, and has
a flag for everything.
"""

from pathlib import Path

from bert_jax.cli import opening

TRAINS = True


def arguments(add) -> None:
    add("paths", nargs="+", help="files, directories or globs of text or JSONL")
    add("--model", required=True, help=f"to start from: {opening.MODEL}")
    add("--out", required=True, type=Path, help="work directory; OUT/model is made")
    add("--epochs", type=float, default=3, help="passes over the text")
    add("--learning-rate", type=float, default=2e-5)
    add("--batch-size", type=int, default=32, help="rows in an update")
    add("--length", type=int, default=128, help="of a row in tokens")
    pairs = ("next", "order", "none")
    add("--pairs", choices=pairs, help="of sentences; default: as the model learnt")
    add("--held-out", type=float, default=0.05, help="share of documents for eval")
    add("--format", default="auto", help="lines, paragraphs, jsonl, wikiextractor, …")
    add("--processes", type=int, help="to prepare the text; default: one a core")
    add("--seed", type=int, default=0)


def run(args) -> None:
    import bert_jax
    from bert_jax.inference import jitted

    jitted.use_compilation_cache()
    bert_jax.pretrain(
        args.model,
        args.paths,
        epochs=args.epochs,
        learning_rate=args.learning_rate,
        batch_size=args.batch_size,
        length=args.length,
        pairs=args.pairs,
        held_out=args.held_out,
        format=args.format,
        processes=args.processes,
        seed=args.seed,
        workdir=args.out,
    )
