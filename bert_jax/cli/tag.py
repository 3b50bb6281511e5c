"""Labels every word of every text: entities, parts of speech, what the model learnt.

Examples:
  bert-jax tag "Ada Lovelace lived in London ." --model DIR
  bert-jax tag messages.txt --model DIR --out tags.jsonl
  bert-jax tag messages.txt --model DIR --format text > tags.conll

Objects have a field `text`, or `tokens`, a list of words. As text, each line is a word
with its label, and an empty line ends each text.
"""

from bert_jax.cli import using
from bert_jax.cli.reading import Record


def arguments(add) -> None:
    using.arguments(add)
    add("--text", default="text", metavar="FIELD", help="of JSONL, that has the text")
    add("--tokens", default="tokens", metavar="FIELD", help="likewise, its words")


def run(args) -> None:
    from bert_jax.inference import tag

    using.run(
        args,
        heads=("ForTokenClassification",),
        refuse=tag.check_head,
        call=lambda model, block: model.tag(_texts(block, args), args.batch_size),
        as_json=lambda tags: [tag._asdict() for tag in tags],
        as_text=lambda _, tags: "".join(f"{x.word}\t{x.label}\n" for x in tags),
    )


def _texts(block: list[Record], args):
    if using.have(block, args.tokens):
        return [using.strings(record, args.tokens) for record in block]
    return [record.text(args.text) for record in block]
