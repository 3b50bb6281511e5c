"""Says which words are likeliest where [MASK] stands.

Examples:
  bert-jax fill-mask "Paris is the [MASK] of France ." --model DIR
  bert-jax fill-mask sentences.txt --k 1 --out guesses.jsonl --model DIR
"""

from bert_jax.cli import using
from bert_jax.cli.reading import Record


def arguments(add) -> None:
    using.arguments(add)
    add("--k", type=int, default=5, help="guesses for each mask")
    add("--text", default="text", metavar="FIELD", help="of JSONL, that has the text")


def run(args) -> None:
    from bert_jax.inference import fill_mask

    using.run(
        args,
        heads=("ForPreTraining", "ForMaskedLM"),
        refuse=fill_mask.check_head,
        call=lambda model, block: _guesses(model, block, args),
        as_json=lambda found: [[x._asdict() for x in guesses] for guesses in found],
        as_text=lambda record, found: _said(record.text(args.text), found),
    )


def _guesses(model, block: list[Record], args):
    texts = [record.text(args.text) for record in block]
    mask = model.tokenizer.id_to_token(model.tokenizer.mask_id)
    for record, text in zip(block, texts, strict=True):
        if mask not in text:
            raise ValueError(
                f"{record.place} has no {mask}: {text!r:.60}; write one in place "
                "of a word"
            )
    return model.fill_mask(texts, args.k, args.batch_size)


def _said(text, found):
    """The guesses below their text, with an empty line between two masks."""
    masks = [[f"{x.probability:6.1%}  {x.token}" for x in each] for each in found]
    lines = masks[0] + [line for each in masks[1:] for line in ("", *each)]
    return using.titled(text, lines)
