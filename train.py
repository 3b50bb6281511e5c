"""Trains what a config says: python train.py --config=configs/quickstart.py

Any field can be set: --config.num_steps=100 --config.encoder.num_hidden_layers=4
The story itself is bert_jax/training/loop.py.
"""

import os
import sys
from pathlib import Path

from absl import app, flags
from ml_collections import config_flags

CONFIG = config_flags.DEFINE_config_file(
    "config", str(Path(__file__).parent / "configs/quickstart.py"), "The recipe to run."
)
WORKDIR = flags.DEFINE_string(
    "workdir", None, "Where data, checkpoints and the model go; runs/<config> if unset."
)


def main(argv: list[str]) -> None:
    """Trains, then says what the model can do."""
    if len(argv) > 1:
        raise app.UsageError(
            f"unknown argument {argv[1]!r}; fields are --config.NAME=…"
        )
    name = Path(config_flags.get_config_filename(flags.FLAGS["config"])).stem
    workdir = Path(WORKDIR.value or Path("runs") / name)
    os.environ.setdefault(
        "JAX_COMPILATION_CACHE_DIR", str(workdir.absolute() / "cache")
    )
    import bert_jax

    try:
        bert_jax.train(CONFIG.value, workdir)
    except (ValueError, OSError) as error:
        sys.exit(f"train.py: {error}")


if __name__ == "__main__":
    app.run(main)
