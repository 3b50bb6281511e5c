"""Writes an interactive page for a browser: attention on a text, or one word.

With --word, the page shows the vectors of that word in many texts, layer by layer, in
two dimensions; each line of a file is a text.

Examples:
  bert-jax view "The cat sat." --model DIR
  bert-jax view letter.txt --model DIR
  bert-jax view "The cat sat." --pair "It slept." --model DIR --out view.html
  bert-jax view --word bank texts.txt --model DIR --out bank.html
  bert-jax view --word bank texts.tsv --groups sense --model DIR
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from bert_jax.cli import model_commands, records
from bert_jax.files import counted


def add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "inputs",
        nargs="+",
        metavar="INPUT",
        help=f"{records.INPUT}; one text without --word",
    )
    add("--pair", help="a second text, or a file of it")
    add("--word", help="show this word in its contexts")
    add(
        "--groups",
        metavar="FIELD",
        help="the field, or the column of a table, for colours",
    )
    add("--text", default="text", metavar="FIELD", help=model_commands.TEXT_FIELD)
    add("--out", default="view.html", metavar="FILE", help="default: view.html")
    model_commands.add_model_arguments(parser)


def run(args: Namespace) -> None:
    records.check_out(Path(args.out))
    view, summary = _attention(args) if args.word is None else _word_map(args)
    view.save_html(args.out)
    print(f"{args.out}: {summary}; open it in a browser")


def _attention(args: Namespace) -> tuple[Any, str]:
    if len(args.inputs) > 1 or args.groups:
        raise ValueError(
            "attention is shown on one text; quote it, give a second one with --pair, "
            "or show one word of many texts with --word"
        )
    text = records.one_text(args.inputs[0], args.text)
    pair = args.pair and records.one_text(args.pair, args.text)
    # Every head has an encoder, so that every model fits.
    model = model_commands.open_model(args, ("",))
    attention = model.attention(text, pair)
    layers, heads, length, _ = attention.weights.shape
    return (
        attention,
        f"{counted(layers, 'layer')} x {counted(heads, 'head')}, {length} tokens",
    )


def _word_map(args: Namespace) -> tuple[Any, str]:
    if args.pair is not None:
        raise ValueError("--pair is a second text for attention; remove it or --word")
    records.announce_terminal(args.inputs)
    fields = records.Fields(
        text=None if args.text == "text" else args.text,
        labelled=args.groups == "label",
    )
    inputs = list(records.read(args.inputs, fields))
    texts = [record.text(args.text) for record in inputs]
    groups = [record.text(args.groups) for record in inputs] if args.groups else None
    model = model_commands.open_model(args, ("",))
    word_map = model.word_map(args.word, texts, groups)
    return word_map, f"{args.word!r} in {counted(len(word_map.texts), 'context')}"
