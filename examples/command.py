"""The command line of examples that are not training runs.

The flags are `--config=FILE`, `--config.FIELD=VALUE` and `--workdir=DIR`.
"""

import os
import sys
import warnings
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import jax
from absl import app, flags, logging
from ml_collections import config_flags

WORKDIR = flags.DEFINE_string("workdir", None, "Directory of the results.")


def main(argv: list[str]) -> None:
    """Runs the config that `--config` names."""
    if len(argv) > 1:
        raise app.UsageError(f"unknown argument {argv[1]!r}; set --config.NAME=...")
    logging.set_verbosity(logging.WARNING)
    warnings.formatwarning = lambda message, *_: f"{message}\n"
    workdir = Path(WORKDIR.value)
    jax.config.update("jax_compilation_cache_dir", str(workdir.absolute() / "cache"))
    # With several CPU devices, programs in flight together wait for each other.
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    try:
        flags.FLAGS.config.run(workdir)
    except (ValueError, OSError) as error:
        sys.exit(str(error))


def run(default: str) -> None:
    """Parses the flags and runs; `default` is the config without `--config`."""
    flags.mark_flag_as_required("workdir")

    def parse(argv: list[str]) -> list[str]:
        config_flags.DEFINE_config_file("config", default, "The config to run.")
        return app.parse_flags_with_usage(argv)

    app.run(main, flags_parser=parse)
