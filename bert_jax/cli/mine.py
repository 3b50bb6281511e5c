"""Adds hard negatives to pairs: documents that are near to an anchor, but wrong.

Examples:
  bert-jax mine pairs.jsonl --model DIR --out groups.jsonl
  bert-jax mine pairs.tsv --corpus corpus.index --model DIR --out groups.jsonl
  bert-jax mine pairs.tsv --range-min 10 --relative-margin 0.05 --out groups.jsonl
  bert-jax mine pairs.tsv --reranker DIR2 --form pairs --scores --out pairs.jsonl
"""

import json
from argparse import ArgumentParser, Namespace
from pathlib import Path

from bert_jax import files
from bert_jax.cli import model_commands, records
from bert_jax.cli.search import CORPUS


def add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("pairs", help="a file with an anchor and a positive in each row")
    model_commands.add_model_arguments(parser)
    add("--corpus", help=f"{CORPUS}; default: the positives")
    add("--num-negatives", type=int, default=3, help="for each pair; default: 3")
    add("--range-min", type=int, default=0, help="so many nearest are passed over")
    add("--range-max", type=int, help="ranks to choose from; default: enough")
    add("--min-score", type=float, help="the least score of a negative")
    add("--max-score", type=float, help="the highest score of a negative")
    add("--absolute-margin", type=float, help="to the score of the positive")
    add("--relative-margin", type=float, help="the same, as a share of that score")
    add("--sampling", choices=("top", "random"), default="top", help="in the range")
    add("--seed", type=int, default=0, help="of --sampling random")
    add("--reranker", help="a model that scores pairs, in place of the vectors")
    forms = ("groups", "triplets", "pairs")
    add("--form", choices=forms, default="groups", help="rows to write")
    add("--scores", action="store_true", help="write the scores too")
    add("--out", type=Path, required=True, help="a JSONL file for the rows")


def run(args: Namespace) -> None:
    from bert_jax.inference.mine import mine

    records.check_out(args.out)
    model = model_commands.open_model(args, ("",))
    model.progress = True
    reranker = None
    if args.reranker:
        import bert_jax

        reranker = bert_jax.load(args.reranker, args.dtype, args.strict)
    rows = mine(
        model,
        args.pairs,
        args.corpus,
        num_negatives=args.num_negatives,
        range_min=args.range_min,
        range_max=args.range_max,
        min_score=args.min_score,
        max_score=args.max_score,
        absolute_margin=args.absolute_margin,
        relative_margin=args.relative_margin,
        sampling=args.sampling,
        reranker=reranker,
        form=args.form,
        scores=args.scores,
        seed=args.seed,
        batch_size=args.batch_size,
    )
    with files.new_file(args.out) as file:
        for row in rows:
            print(json.dumps(row, ensure_ascii=False), file=file)
    print(f"{args.out}: {files.counted(len(rows), 'row')}")
