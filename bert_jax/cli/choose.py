"""Ranks the choices that may follow a context.

Examples:
  bert-jax choose questions.jsonl --model DIR

Objects have the fields `context`, `choices`, a list of texts, and optionally `opening`,
which is put before each choice.
"""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from bert_jax.cli import model_commands
from bert_jax.cli.records import Record, has_field

if TYPE_CHECKING:
    from bert_jax.inference.model import Model


def add_arguments(parser: ArgumentParser) -> None:
    model_commands.add_arguments(parser)


def run(args: Namespace) -> None:
    from bert_jax.inference import choose

    model_commands.run(
        args,
        heads=("ForMultipleChoice",),
        check_head=choose.check_head,
        predict=lambda model, block: _choose(model, block, args),
        as_json=lambda ranked: [choice._asdict() for choice in ranked],
        as_text=lambda record, ranked: model_commands.titled(
            record.text("context"), [f"{x.probability:6.1%}  {x.text}" for x in ranked]
        ),
        work="choosing",
    )


def _choose(model: "Model", block: list[Record], args: Namespace) -> Any:
    choices = [record.strings("choices") for record in block]
    contexts = [record.text("context") for record in block]
    if not has_field(block, "opening"):
        return model.choose(contexts, choices, args.batch_size)
    openings = [record.text("opening") for record in block]
    pairs = list(zip(contexts, openings, strict=True))
    return model.choose(pairs, choices, args.batch_size)
