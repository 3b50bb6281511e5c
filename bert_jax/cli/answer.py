"""Finds the answer to a question in a text; empty where the model says there is none.

Examples:
  bert-jax answer "Who wrote it?" --context book.txt --model DIR
  bert-jax answer questions.txt --context "Ada wrote it in 1843." --model DIR
  bert-jax answer questions.jsonl --model DIR --out answers.jsonl

Objects have the fields `question` and, without --context, `context`.
"""

import os

from bert_jax.cli import using
from bert_jax.cli.reading import Record


def arguments(add) -> None:
    using.arguments(add)
    add("--context", help="a file to look in, or a text in quotes, for all questions")
    add("--null-threshold", type=float, help="odds above which there is no answer")


def run(args) -> None:
    from bert_jax.inference import answer

    context = args.context and _context(args.context)
    using.run(
        args,
        heads=("ForQuestionAnswering",),
        refuse=answer.check_head,
        call=lambda model, block: _answers(model, block, context, args),
        as_json=lambda span: span._asdict(),
        as_text=lambda record, span: f"{span.text}\t{span.score:.1%}\t{_asked(record)}",
    )


def _context(given: str) -> str:
    if os.path.isfile(given):
        # Only here, for it imports the splitter of sentences.
        from bert_jax.data import corpus

        return "\n".join(line for _, line in corpus.lines(given))
    if any(map(str.isspace, given)):
        return given
    raise ValueError(f"--context: there is no file {given!r}; check the path")


def _asked(record: Record) -> str:
    """An object has a question; a line is one."""
    return record.text("text" if record.fields.keys() == {"text"} else "question")


def _answers(model, block: list[Record], context, args):
    questions = [_asked(record) for record in block]
    if context is not None:
        contexts = [context] * len(block)
    elif block[0].fields.keys() == {"text"}:
        raise ValueError(
            f"{block[0].place}: where to look for the answer? Give --context FILE, or "
            "JSONL with the fields question and context"
        )
    else:
        contexts = [record.text("context") for record in block]
    return model.answer(
        questions,
        contexts,
        null_threshold=args.null_threshold,
        batch_size=args.batch_size,
    )
