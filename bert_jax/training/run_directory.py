"""What a work directory says of its run, and who may go on with it."""

import json
import os
from pathlib import Path
from typing import Any

import jax

from bert_jax import files
from bert_jax.training import hosts
from bert_jax.training.config import HARMLESS, TrainConfig, flat


def claim(workdir: str | Path, config: TrainConfig) -> Path:
    """Makes `workdir`, or finds that it is this run's: the absolute path.

    Raises ValueError where it cannot be written, or holds a run of another config.
    """
    workdir = Path(workdir).expanduser().absolute()
    try:
        workdir.mkdir(parents=True, exist_ok=True)
        probe = workdir / f".probe-{jax.process_index()}-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise ValueError(
            f"workdir={str(workdir)!r} cannot be written ({error.strerror}); "
            "choose another --workdir or mend its permissions"
        ) from None
    file = workdir / "config.json"
    if file.exists() and config.resume != "changed":
        with files.readable_errors(file, "delete it to go on with this run"):
            refuse_changes(json.loads(file.read_text()), flat(config), str(workdir))
    return workdir


def keep(workdir: Path, config: TrainConfig) -> None:
    """Says in `workdir` whose run it is; done once nothing was found wrong."""
    file = workdir / "config.json"
    if jax.process_index() == 0:
        files.write_json(file, flat(config))
    hosts.agree(True)
    if not hosts.agree(file.exists()):
        raise ValueError(
            f"workdir={str(workdir)!r} is not the same directory on all hosts; choose "
            "one that they share"
        )


def describe(
    config: TrainConfig, task: Any, step: int, examples: int
) -> dict[str, Any]:
    """What a checkpoint says of itself; `examples` is the position in the data."""
    return {
        "step": step,
        "examples": examples,
        "config": flat(config),
        **task.fingerprint,
    }


def refuse_changes(old: dict, new: dict, where: str) -> None:
    """Raises ValueError with the fields that differ between two runs."""
    files.check_unchanged(
        old,
        new,
        f"{where} belongs to another run",
        "choose another --workdir, or accept it with --config.resume=changed",
        harmless=HARMLESS,
    )
