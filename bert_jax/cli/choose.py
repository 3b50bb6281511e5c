"""Ranks the choices that may follow a context.

Examples:
  bert-jax choose questions.jsonl --model DIR

Objects have the fields `context`, `choices`, a list of texts, and perhaps `opening`,
which stands before each choice.
"""

from bert_jax.cli import using
from bert_jax.cli.reading import Record


def arguments(add) -> None:
    using.arguments(add)


def run(args) -> None:
    from bert_jax.inference import choose

    using.run(
        args,
        heads=("ForMultipleChoice",),
        refuse=choose.check_head,
        call=lambda model, block: _chosen(model, block, args),
        as_json=lambda found: [choice._asdict() for choice in found],
        as_text=lambda record, found: using.titled(
            record.text("context"), [f"{x.probability:6.1%}  {x.text}" for x in found]
        ),
    )


def _chosen(model, block: list[Record], args):
    contexts = [record.text("context") for record in block]
    if using.have(block, "opening"):
        openings = [record.text("opening") for record in block]
        contexts = list(zip(contexts, openings, strict=True))
    choices = [using.strings(record, "choices") for record in block]
    return model.choose(contexts, choices, args.batch_size)
