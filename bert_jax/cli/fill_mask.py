"""Prints the likeliest words for each [MASK].

Examples:
  bert-jax fill-mask "Paris is the [MASK] of France ." --model DIR
  bert-jax fill-mask sentences.txt --k 1 --out guesses.jsonl --model DIR
"""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from bert_jax.cli import model_commands
from bert_jax.cli.records import Record

if TYPE_CHECKING:
    from bert_jax.inference.model import Model


def add_arguments(parser: ArgumentParser) -> None:
    model_commands.add_arguments(parser)
    add = parser.add_argument
    add("-k", "--k", type=int, default=5, help="guesses for each mask")
    add("--text", default="text", metavar="FIELD", help=model_commands.TEXT_FIELD)


def run(args: Namespace) -> None:
    from bert_jax.inference import fill_mask

    model_commands.run(
        args,
        heads=("ForPreTraining", "ForMaskedLM"),
        check_head=fill_mask.check_head,
        predict=lambda model, block: _guesses(model, block, args),
        as_json=lambda masks: [[x._asdict() for x in guesses] for guesses in masks],
        as_text=lambda record, masks: _as_text(record.text(args.text), masks),
        work="filling masks",
    )


def _guesses(model: "Model", block: list[Record], args: Namespace) -> Any:
    texts = [record.text(args.text) for record in block]
    tokenizer = model.check_tokenizer()
    mask = tokenizer.id_to_token(tokenizer.mask_id)
    for record, text in zip(block, texts, strict=True):
        if mask not in text:
            raise ValueError(
                f"{record.place} has no {mask}: {text!r:.60}; write one in place "
                "of a word"
            )
    return model.fill_mask(texts, args.k, args.batch_size)


def _as_text(text: str, masks: Any) -> str:
    """The guesses below their text, with an empty line between two masks."""
    parts = [[f"{x.probability:6.1%}  {x.token}" for x in each] for each in masks]
    lines = parts[0] + [line for each in parts[1:] for line in ("", *each)]
    return model_commands.titled(text, lines)
