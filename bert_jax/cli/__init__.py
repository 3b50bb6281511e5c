"""The command line: `bert-jax COMMAND`.

A command is a module of this folder: its docstring is the help, `add_arguments(parser)`
adds its flags and `run(args)` does the work; `TRAINS` is true if it trains. `COMMANDS`
lists them, so that `--help` imports none.
"""

import argparse
import contextlib
import difflib
import importlib
import importlib.metadata
import os
import re
import sys
import warnings
from types import ModuleType
from typing import Any, NoReturn

from bert_jax.cli import interrupt, remedies
from bert_jax.training import malloc

COMMANDS = {
    "Use a model": {
        "embed": "vectors of texts",
        "fill-mask": "the likeliest words for a [MASK]",
        "classify": "a label, or a number, for each text or pair",
        "answer": "the answer to a question, from a text",
        "tag": "a label for each word",
        "choose": "the right one of several texts",
        "rank": "documents in the order of their scores for a query",
        "search": "the documents of a corpus nearest to a query",
        "index": "embed a corpus once, for many searches",
        "evaluate": "scores of vectors: similarity, retrieval and more",
    },
    "Train a model": {
        "finetune": "train a model on labelled files",
        "pretrain": "continue pre-training on your own text",
        "check": "summarise labelled files, and list their errors",
        "mine": "add hard negatives to pairs of texts",
        "prepare": "turn raw text into packed token rows, once for many runs",
        "vocab": "train a vocabulary on text",
    },
    "Inspect and convert a model": {
        "view": "attention on a text, or a word in many texts, as a page",
        "describe": "shapes, parameters, FLOPs and memory",
        "convert": "to the formats of transformers, Google's BERT and Orbax",
        "export": "to StableHLO, which runs without this package",
    },
}

# The exit code as shells number it: 128 and the number of the signal.
CLOSED_PIPE = 141


def main(argv: list[str] | None = None) -> None:
    """Runs one command.

    Results go to standard output, all else to standard error. The exit code is 0, or 2
    with a message if the input is wrong, 130 after Ctrl-C, 141 if the reader of the
    output has gone, and 1 for a bug.
    """
    owns_process = argv is None
    # Before jax is imported: XLA would print an error for each cached program.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with contextlib.ExitStack() as stack:
        if owns_process:
            stack.enter_context(interrupt.ends_the_process())
        stack.enter_context(warnings.catch_warnings())
        warnings.showwarning = _show_warning
        try:
            try:
                command, args = parse(sys.argv[1:] if argv is None else argv)
                if owns_process and getattr(command, "TRAINS", False):
                    malloc.keep()
                command.run(args)
            finally:
                sys.stdout.flush()
        except BrokenPipeError:  # for example of `head`, which has read enough
            _discard_stdout()
            sys.exit(CLOSED_PIPE)
        except KeyboardInterrupt:
            sys.exit(interrupt.STATUS)
        except (ValueError, OSError, MemoryError) as error:
            print(f"bert-jax: {remedies.in_shell(str(error))}", file=sys.stderr)
            sys.exit(2)


def parse(argv: list[str]) -> tuple[ModuleType, argparse.Namespace]:
    """The module of a command and its flags; ends the process after printing help."""
    name, *rest = argv or ["--help"]
    if name in ("-h", "--help"):
        print(_help())
        sys.exit(0)
    if name == "--version":
        print(importlib.metadata.version("bert_jax"))
        sys.exit(0)
    known = [command for group in COMMANDS.values() for command in group]
    if name not in known:
        close = difflib.get_close_matches(name, known, 1)
        print(
            f"bert-jax: there is no command {name!r}; "
            + (f"did you mean {close[0]}?" if close else "see bert-jax --help"),
            file=sys.stderr,
        )
        sys.exit(2)
    command = importlib.import_module(f"bert_jax.cli.{name.replace('-', '_')}")
    parser = Parser(
        prog=f"bert-jax {name}",
        description=command.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.add_arguments(parser)
    parser.check_flags(rest)
    return command, parser.parse_args(rest)


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line with a suggestion, without all flags."""

    @property
    def flags(self) -> list[str]:
        """All flags; the texts of the help may name others."""
        return re.findall(r"--[\w-]+", self.format_help())

    def check_flags(self, argv: list[str]) -> None:
        """Ends with an error for a flag that has another name here.

        The flag under its name here would be called missing otherwise.
        """
        for flag in (x.partition("=")[0] for x in argv if x.startswith("--")):
            if remedy := _other_name(flag, self.flags):
                self.exit(2, f"{self.prog}: there is no {flag}; {remedy}\n")

    def print_help(self, file: Any = None) -> None:
        print(self.format_help(), end="", file=file)  # its own drops a broken pipe

    def error(self, message: str) -> NoReturn:
        known, wrong = self.flags, re.findall(r"--[\w-]+", message)
        remedies = [_remedy(flag, known) for flag in wrong]
        remedy = next(filter(None, remedies), f"see {self.prog} --help")
        print(f"{self.prog}: {message}; {remedy}", file=sys.stderr)
        sys.exit(2)


def _remedy(wrong: str, known: list[str]) -> str:
    """The flag that is meant by a wrong one; "" if there is none like it."""
    close = [] if wrong in known else difflib.get_close_matches(wrong, known, 1)
    return f"did you mean {close[0]}?" if close else ""


def _other_name(wrong: str, known: list[str]) -> str:
    """Our flag for one with the name that other libraries use; "" if there is none."""
    from bert_jax.training import fields

    if wrong in known:
        return ""
    names = {flag[2:].replace("-", "_"): flag for flag in known}
    name = wrong[2:].replace("-", "_")
    meant = name if name in names else fields.our_name(name, names)
    return f"its name here is {names[meant]}" if meant else ""


def _help() -> str:
    lines = ["usage: bert-jax COMMAND …", ""]
    for heading, group in COMMANDS.items():
        lines += [heading, *(f"  {name:11}{text}" for name, text in group.items()), ""]
    lines.append("bert-jax COMMAND --help shows the flags of a command, with examples.")
    return "\n".join(lines)


def _show_warning(message, category, filename, lineno, file=None, line=None):
    """Prints a warning as a sentence, without the code it came from."""
    from bert_jax.data import progress

    with progress.above_bars():
        print(f"bert-jax: {remedies.in_shell(str(message))}", file=sys.stderr)


def _discard_stdout() -> None:
    # Python flushes standard output once more when it ends.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
