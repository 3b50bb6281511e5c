"""The command line: `bert-jax VERB`.

A verb is a module here: its docstring is the help, `arguments(add)` names its flags and
`run(args)` does the work; `TRAINS` says that it trains. `VERBS` lists them, so that
`--help` imports none.
"""

import argparse
import difflib
import functools
import importlib
import importlib.metadata
import os
import re
import sys
import warnings
from types import ModuleType
from typing import NoReturn

from bert_jax.training import malloc

VERBS = {
    "Use a model": {
        "embed": "texts to vectors",
        "fill-mask": "the likeliest words where [MASK] stands",
        "classify": "a label, or a number, for each text or pair",
        "answer": "the answer to a question, in a text",
        "tag": "a label for each word",
        "choose": "the right one of several texts",
    },
    "Make one": {
        "finetune": "teach a model from labelled files",
        "pretrain": "go on pre-training on your own text",
        "check": "what labelled files hold, and what is wrong with them",
        "prepare": "raw text to packed token rows, once for many runs",
        "vocab": "learn a vocabulary from text",
    },
    "Look at one, hand it on": {
        "view": "attention on a text, or a word in many, as a page",
        "describe": "shapes, parameters, FLOPs and memory",
        "convert": "to the formats of transformers, Google's BERT and Orbax",
        "export": "to StableHLO, which runs without this package",
    },
}

# As shells number them: 128 and the number of the signal.
INTERRUPTED, CLOSED_PIPE = 130, 141


def main(argv: list[str] | None = None) -> None:
    """Runs one verb.

    Results go to standard output, all else to standard error. It ends with 0, or with 2
    and a message where the input is wrong, 130 after Ctrl-C, 141 where the reader of
    its output is gone, and 1 for a fault of its own.
    """
    verb, args = parsed(sys.argv[1:] if argv is None else argv)
    if argv is None and getattr(verb, "TRAINS", False):
        malloc.keep()
    # Before jax: XLA would print an alarm for each program it finds compiled.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with warnings.catch_warnings():
        warnings.showwarning = _say
        try:
            verb.run(args)
            sys.stdout.flush()
        except BrokenPipeError:  # as of `head`, which has enough
            _let_go_of_stdout()
            sys.exit(CLOSED_PIPE)
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)
        except (ValueError, OSError, MemoryError) as error:
            print(f"bert-jax: {error}", file=sys.stderr)
            sys.exit(2)


def parsed(argv: list[str]) -> tuple[ModuleType, argparse.Namespace]:
    """The module of a verb and what its flags say; ends the process with help."""
    name, *rest = argv or ["--help"]
    if name in ("-h", "--help"):
        print(_help())
        sys.exit(0)
    if name == "--version":
        print(importlib.metadata.version("bert_jax"))
        sys.exit(0)
    known = [verb for verbs in VERBS.values() for verb in verbs]
    if name not in known:
        close = difflib.get_close_matches(name, known, 1)
        print(
            f"bert-jax: there is no verb {name!r}; "
            + (f"did you mean {close[0]}?" if close else "see bert-jax --help"),
            file=sys.stderr,
        )
        sys.exit(2)
    verb = importlib.import_module(f"bert_jax.cli.{name.replace('-', '_')}")
    parser = argparse.ArgumentParser(
        prog=f"bert-jax {name}",
        description=verb.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    verb.arguments(parser.add_argument)
    parser.error = functools.partial(_refuse, parser)
    return verb, parser.parse_args(rest)


def _refuse(parser: argparse.ArgumentParser, message: str) -> NoReturn:
    """One line instead of all flags: what is wrong, and what may have been meant."""
    close = [
        flag
        for wrong in re.findall(r"--[\w-]+", message)
        for flag in difflib.get_close_matches(
            wrong, re.findall(r"--[\w-]+", parser.format_usage()), 1
        )
        if flag != wrong
    ]
    meant = f"did you mean {close[0]}?" if close else f"see {parser.prog} --help"
    print(f"{parser.prog}: {message}; {meant}", file=sys.stderr)
    sys.exit(2)


def _help() -> str:
    lines = ["usage: bert-jax VERB …", ""]
    for heading, verbs in VERBS.items():
        lines += [heading, *(f"  {verb:11}{said}" for verb, said in verbs.items()), ""]
    lines.append("bert-jax VERB --help has the flags of a verb, and examples.")
    return "\n".join(lines)


def _say(message, category, filename, lineno, file=None, line=None):
    """A warning is a sentence for a person, without the code it came from."""
    print(f"bert-jax: {message}", file=sys.stderr)


def _let_go_of_stdout():
    # Python would try to flush it once more when it ends.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
