"""Writes a page to look through in a browser: attention on a text, or one word.

With --word it is that word wherever it stands in many texts, and what each layer makes
of it there, in two dimensions; each line of a file is a text.

Examples:
  bert-jax view "The cat sat." --model DIR
  bert-jax view "The cat sat." --pair "It slept." --model DIR --out view.html
  bert-jax view --word bank texts.txt --model DIR --out bank.html
  bert-jax view --word bank texts.tsv --groups label --model DIR
"""

from typing import Any

from bert_jax.cli import opening, reading


def arguments(add) -> None:
    add("inputs", nargs="+", metavar="INPUT", help=f"a text; of --word {reading.INPUT}")
    add("--pair", help="a second text")
    add("--word", help="show this word in its contexts")
    add("--groups", metavar="FIELD", help="of JSONL, or label of a table: the colours")
    add("--text", default="text", metavar="FIELD", help="of JSONL, that has the text")
    add("--out", default="view.html", metavar="FILE", help="default: view.html")
    opening.arguments(add)


def run(args) -> None:
    found, said = _attention(args) if args.word is None else _word_map(args)
    found.save_html(args.out)
    print(f"{args.out}: {said}; open it")


def _attention(args) -> tuple[Any, str]:
    if len(args.inputs) > 1 or args.groups:
        raise ValueError(
            "attention is shown on one text; quote it, name a second one with --pair, "
            "or show one word of many texts with --word"
        )
    # Every head has an encoder below, so that every model fits.
    found = opening.opened(args, ("",)).attention(args.inputs[0], args.pair)
    layers, heads, length, _ = found.weights.shape
    return found, f"{layers} layers x {heads} heads, {length} tokens"


def _word_map(args) -> tuple[Any, str]:
    if args.pair is not None:
        raise ValueError(
            "--pair is a second text for attention; leave it or --word out"
        )
    reading.refuse_terminal(args.inputs)
    records = list(reading.records(args.inputs, labelled=args.groups is not None))
    texts = [record.text(args.text) for record in records]
    groups = [record.text(args.groups) for record in records] if args.groups else None
    found = opening.opened(args, ("",)).word_map(args.word, texts, groups)
    return found, f"{args.word!r} in {len(found.texts)} contexts"
