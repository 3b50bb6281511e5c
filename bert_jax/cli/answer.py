"""Finds the answer to a question in a text; it is empty if the text has none.

Examples:
  bert-jax answer "Who wrote it?" --context book.txt --model DIR
  bert-jax answer questions.txt --context "Ada wrote it in 1843." --model DIR
  bert-jax answer questions.jsonl --model DIR --out answers.jsonl

Objects and tables have the fields `question` and, without --context, `context`.
"""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from bert_jax.cli import model_commands, records
from bert_jax.cli.records import Record

if TYPE_CHECKING:
    from bert_jax.inference.model import Model


def add_arguments(parser: ArgumentParser) -> None:
    model_commands.add_arguments(parser)
    add = parser.add_argument
    add("--context", help="a file, or a text in quotes, for all questions")
    threshold = (
        "no answer, where its logit is so much above that of the best text; default: "
        "the model's own"
    )
    add("--null-threshold", type=float, help=threshold)


def run(args: Namespace) -> None:
    from bert_jax.inference import answer

    context = args.context and records.one_text(args.context, "context")
    model_commands.run(
        args,
        heads=("ForQuestionAnswering",),
        check_head=answer.check_head,
        predict=lambda model, block: _answers(model, block, context, args),
        as_json=lambda span: span._asdict(),
        as_text=lambda record, x: f"{x.text}\t{x.score:.1%}\t{_question(record)}",
        # With a context for all, the questions are the texts of a table.
        fields=None if args.context else records.Fields("question", "context"),
        work="answering",
    )


def _question(record: Record) -> str:
    """The field `question`, or else the text of a line or of a table."""
    is_text = "text" in record.fields and "question" not in record.fields
    return record.text("text" if is_text else "question")


def _answers(
    model: "Model", block: list[Record], context: str | None, args: Namespace
) -> Any:
    questions = [_question(record) for record in block]
    if context is not None:
        contexts = [context] * len(block)
    elif block[0].fields.keys() == {"text"}:
        raise ValueError(
            f"{block[0].place}: the question has no context. Give --context FILE, or "
            "JSONL or a table with the fields question and context"
        )
    else:
        contexts = [record.text("context") for record in block]
    return model.answer(
        questions,
        contexts,
        null_threshold=args.null_threshold,
        batch_size=args.batch_size,
    )
