"""Trains a vocabulary on text, and writes the files of a tokenizer.

Examples:
  bert-jax vocab my_text/ --vocab-size 30522 --out vocabulary
  bert-jax vocab a.txt b.jsonl.gz --vocabulary bpe --vocab-size 50265 --out vocabulary
  bert-jax prepare my_text/ --tokenizer vocabulary --out rows

The text is read once, as a stream; the same text gives the same vocabulary.
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from bert_jax.files import counted

# As in `tokenizers.KINDS`, which --help need not import.
KINDS = ("wordpiece", "bpe", "unigram", "xlnet")


def add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("paths", nargs="+", help="files, directories or globs of text or JSONL")
    add("--out", required=True, type=Path, help="the new directory")
    pieces = "pieces, special tokens included (default: 30522)"
    add("--vocab-size", type=int, default=30522, metavar="N", help=pieces)
    kinds = "as of BERT, RoBERTa, ALBERT, XLNet (default: wordpiece)"
    add("--vocabulary", choices=KINDS, default="wordpiece", help=kinds)
    add(
        "--cased",
        action="store_true",
        help="keep capitals and accents, as bpe does",
    )
    add("--format", default="auto", help="lines, paragraphs, jsonl, wikiextractor, …")


def run(args: Namespace) -> None:
    from bert_jax import files, tokenizers
    from bert_jax.data import corpus

    files.check_unused(args.out)
    corpus.require(args.paths, args.format)
    texts = map("\n".join, corpus.read(args.paths, args.format))
    lowercase = not (args.cased or args.vocabulary == "bpe")
    tokenizer = tokenizers.train(args.vocabulary, texts, args.vocab_size, lowercase)
    tokenizer.save(args.out)
    print(f"{args.out}: {counted(tokenizer.vocab_size, 'piece')}")
