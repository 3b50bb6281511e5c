"""Scores vectors on pairs, triplets, candidates to rank, or a retrieval collection.

Examples:
  bert-jax evaluate stsb/test.csv --model DIR
  bert-jax evaluate triplets.jsonl --model DIR
  bert-jax evaluate beir/scifact --split test --model DIR --out scores.json

A folder holds corpus.jsonl, queries.jsonl and qrels.tsv or qrels/SPLIT.tsv. In a file,
each row is two texts and a number (correlations) or a class of 0 and 1 (the best
thresholds), or has the columns anchor, positive and negative, or is an object with a
query, and lists of texts as positive and negative.
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from bert_jax import files
from bert_jax.cli import model_commands, records


def add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("data", nargs="+", metavar="DATA", help="folders and files")
    model_commands.add_model_arguments(parser)
    kinds = ("similarity", "pairs", "triplets", "reranking", "retrieval")
    add("--kind", choices=kinds, help="of evaluation; default: detected")
    add("--split", default="test", help="of the judgements in a folder; default: test")
    add("--out", type=Path, help="a JSON file for the scores")


def run(args: Namespace) -> None:
    from bert_jax.data import evaluation

    records.check_out(args.out)
    # All is read before the model is opened.
    data = {x: evaluation.read(x, args.kind, args.split) for x in args.data}
    model = model_commands.open_model(args, ("",))
    model.progress = True
    scores = {}
    for name, content in data.items():
        scores[name] = model.evaluate(content, batch_size=args.batch_size)
        lines = [f"{score:24}{value:.4f}" for score, value in scores[name].items()]
        print(model_commands.titled(name, lines), flush=True)
    if args.out:
        files.write_json(args.out, scores)
