"""Learns a vocabulary from text, and writes the files of a tokenizer.

Examples:
  bert-jax vocab my_text/ --size 30522 --out vocabulary
  bert-jax vocab a.txt b.jsonl.gz --kind bpe --size 50265 --out vocabulary
  bert-jax prepare my_text/ --tokenizer vocabulary --out rows

What is learnt from is read once, as a stream; the same text gives the same vocabulary.
"""

from pathlib import Path

KINDS = {"wordpiece": "WordPiece", "bpe": "ByteLevelBPE", "unigram": "SentencePiece"}


def arguments(add) -> None:
    add("paths", nargs="+", help="files, directories or globs of text or JSONL")
    add("--out", required=True, type=Path, help="directory to make")
    add("--size", type=int, default=30522, help="pieces, special ones included")
    add(
        "--kind", choices=KINDS, default="wordpiece", help="BERT's, RoBERTa's, ALBERT's"
    )
    add("--cased", action="store_true", help="keep capitals and accents; bpe does")
    add("--format", default="auto", help="lines, paragraphs, jsonl, wikiextractor, …")


def run(args) -> None:
    from bert_jax import files, tokenizers
    from bert_jax.data import corpus

    files.check_unused(args.out)
    corpus.require(args.paths, args.format)
    texts = map("\n".join, corpus.read(args.paths, args.format))
    kind = getattr(tokenizers, KINDS[args.kind])
    letters = {} if args.kind == "bpe" else {"lowercase": not args.cased}
    tokenizer = kind.train(texts, args.size, **letters)
    tokenizer.save(args.out)
    print(f"{args.out}: {tokenizer.vocab_size:,} pieces")
