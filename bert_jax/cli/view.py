"""Writes attention on a text as a page to look through in a browser.

Examples:
  bert-jax view "The cat sat." --model DIR
  bert-jax view "The cat sat." --pair "It slept." --model DIR --out view.html
"""

from bert_jax.cli import opening


def arguments(add) -> None:
    add("text")
    add("--pair", help="a second text")
    add("--out", default="view.html", metavar="FILE", help="default: view.html")
    opening.arguments(add)


def run(args) -> None:
    # Every head has an encoder below, so that every model fits.
    found = opening.opened(args, ("",)).attention(args.text, args.pair)
    found.save_html(args.out)
    layers, heads, length, _ = found.weights.shape
    print(f"{args.out}: {layers} layers x {heads} heads, {length} tokens; open it")
