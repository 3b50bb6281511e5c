"""Runs what a config says: python train.py --config=configs/quickstart.py

Any field can be set: --config.num_steps=100 --config.encoder.num_hidden_layers=4
--help after --config lists the fields of that config with their values.
The training loop is bert_jax/training/loop.py.
"""

import difflib
import os
import pydoc
import re
import signal
import sys
import textwrap
import warnings
from pathlib import Path

from bert_jax.data import optional
from bert_jax.training import malloc

# Until there is something to save, Ctrl-C ends the process at once: an exception would
# be lost where one came in a destructor or a callback of a library.
signal.signal(signal.SIGINT, signal.SIG_DFL)

if __name__ == "__main__":
    malloc.keep()

# Before jax: XLA would print an alarm for each program it reads back from the cache,
# because it names two hints to the compiler among the features of the processor.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

try:
    optional.check_installed("train.py")
except optional.MissingExtraError as error:
    sys.exit(f"train.py: {error}")

import jax
from absl import app, flags, logging
from ml_collections import config_flags

from bert_jax import api, files
from bert_jax.training import fields, hosts

QUICKSTART = Path(__file__).parent / "configs/quickstart.py"

WORKDIR = flags.DEFINE_string(
    "workdir", None, "Directory of data, checkpoints and model; runs/<config> if unset."
)


HOSTS = flags.DEFINE_bool(
    "hosts", False, "Run as one with the other hosts of a pod or of a Slurm job."
)
COORDINATOR = flags.DEFINE_string(
    "coordinator_address", None, "Elsewhere: HOST:PORT of process 0, on all of them."
)
PROCESSES = flags.DEFINE_integer("num_processes", None, "How many there are.")
PROCESS = flags.DEFINE_integer("process_id", None, "Which one this is, from 0.")

HELP = ("--help", "-h", "-help", "--helpshort", "--helpfull")
WIDTH, INDENT = 88, " " * 6


def main(argv: list[str]) -> None:
    """Trains; see `bert_jax.train`."""
    logging.set_verbosity(logging.WARNING)
    # A warning is a sentence for a person, without the line of code it came from.
    warnings.formatwarning = lambda message, *_: f"{message}\n"
    recipe = Path(config_flags.get_config_filename(flags.FLAGS["config"])).name
    # With several CPU devices, programs in flight together wait for each other.
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    config = flags.FLAGS.config
    names = {x.dotted: f"--config.{x.dotted}" for x in fields.leaves(config)}
    try:
        workdir = files.local_path(WORKDIR.value or f"runs/{Path(recipe).stem}")
        # A run that starts again finds its programs compiled.
        cache = workdir.absolute() / "cache"
        jax.config.update("jax_compilation_cache_dir", str(cache))
        if HOSTS.value or COORDINATOR.value:
            hosts.join(COORDINATOR.value, PROCESSES.value, PROCESS.value)
        with fields.errors_renamed(names | {"workdir": "--workdir"}):
            api.run(config, workdir, shell=True)
    except Exception as error:
        ours = isinstance(error, ValueError | OSError | MemoryError)
        message = hosts.lost(error) or (explained(str(error)) if ours else None)
        if message is None:
            raise
        hosts.leave(f"train.py: {message}")


def parse(argv: list[str]) -> list[str]:
    """Flags and recipe; a mistake in either ends in one line."""
    rest = [x for x in argv if x not in HELP]
    try:
        config_flags.DEFINE_config_file(
            "config", str(QUICKSTART), "The recipe to run.", sys_argv=rest
        )
        others = flags.FLAGS(rest)
        names = list(fields.leaves(flags.FLAGS.config))
    except flags.UnrecognizedFlagError as error:
        sys.exit(f"train.py: {unknown(error.flagname)}")
    except (KeyError, ValueError, TypeError, OSError, flags.Error) as error:
        sys.exit(f"train.py: {explained(error.args[-1])}")
    if len(rest) < len(argv):
        print(help_on(names))
        sys.exit()
    if others[1:]:
        remedy = "fields are --config.NAME=…"
        sys.exit(f"train.py: unknown argument {others[1]!r}; {remedy}")
    return others


def unknown(flag: str) -> str:
    """The answer to a flag that does not exist, such as a field without its path."""
    names = {x.path[-1]: x for x in fields.leaves(flags.FLAGS["config"].value)}
    name = fields.our_name(flag.replace("-", "_"), names) or flag.replace("-", "_")
    if name in names:
        return f"there is no --{flag}; did you mean --config.{names[name].dotted}?"
    return f"there is no --{flag}; train.py --help lists all flags"


def help_on(names: list[fields.Field]) -> str:
    """The flags, and the fields of a config with their values."""
    own = [WORKDIR, HOSTS, COORDINATOR, PROCESSES, PROCESS]
    lines = [__doc__.strip(), "", "Flags:"]
    lines += [_entry(f"--{flag.name}", flags.FLAGS[flag.name].help) for flag in own]
    lines += ["", "Fields of this config, with their values:"]
    lines += [_entry(f"--config.{x.dotted}={x.shown}", x.description) for x in names]
    return "\n".join(lines)


def _entry(name: str, text: str) -> str:
    lines = textwrap.wrap(text, WIDTH, initial_indent=INDENT, subsequent_indent=INDENT)
    return "\n".join([f"  {name}", *lines])


def explained(message: str) -> str:
    """An error of ml_collections in plain words, with the likely intention."""
    absent = r"(?s)Failed loading config file.* No such file or directory: '(.*)'"
    if missing := re.search(absent, message):
        return f"there is no recipe '{missing[1]}'; configs/ has them"
    field = re.search(r"Field (\w+) not found .*<class '(.*)'>", message)
    if not field:
        return message
    name, kind = field.groups()
    known = getattr(pydoc.locate(kind), "__dataclass_fields__", {})
    close = difflib.get_close_matches(name, known, 1)
    meant = f"did you mean {close[0]}?" if close else f"it has {', '.join(known)}"
    return f"{kind.rpartition('.')[2]} has no field {name}; {meant}"


if __name__ == "__main__":
    app.run(main, flags_parser=parse)
