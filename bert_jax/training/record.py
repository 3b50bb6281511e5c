"""What a work directory says of its run, and who may go on with it."""

import json
import os
from pathlib import Path
from typing import Any

import jax

from bert_jax.training.config import HARMLESS, TrainConfig, flat


def claim(workdir: str | Path, config: TrainConfig) -> Path:
    """Makes `workdir`, or finds that it is this run's: the absolute path.

    Raises ValueError where it cannot be written, or holds a run of another config.
    """
    workdir = Path(workdir).expanduser().absolute()
    try:
        workdir.mkdir(parents=True, exist_ok=True)
        probe = workdir / f".probe-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise ValueError(
            f"workdir={str(workdir)!r} cannot be written ({error.strerror}); "
            "choose another --workdir or mend its permissions"
        ) from None
    file = workdir / "config.json"
    if file.exists() and config.resume != "changed":
        refuse_changes(json.loads(file.read_text()), flat(config), str(workdir))
    return workdir


def keep(workdir: Path, config: TrainConfig) -> None:
    """Says in `workdir` whose run it is; done once nothing was found wrong."""
    if jax.process_index() == 0:
        write_json(workdir / "config.json", flat(config))


def describe(config: TrainConfig, task: Any, step: int) -> dict[str, Any]:
    """What a checkpoint says of itself; the data position is counted in examples."""
    return {
        "step": step,
        "examples": step * config.batch_size,
        "config": flat(config),
        **task.fingerprints,
    }


def refuse_changes(old: dict, new: dict, where: str) -> None:
    """Raises ValueError with the fields that differ, up to three of them in full."""
    changed = differences(_joined(old), _joined(new))
    if not changed:
        return
    more = f" (and {len(changed) - 3} more)" if len(changed) > 3 else ""
    raise ValueError(
        f"{where} belongs to another run:\n{'; '.join(changed[:3])}{more}\n"
        "choose another --workdir, or accept it with --config.resume=changed"
    )


def differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Fields that differ between two flat dicts, one line each, harmless ones not."""
    return [
        f"{name}: was {old.get(name)!r}, is {new.get(name)!r}"
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name) and name.split(".")[-1] not in HARMLESS
    ]


def _joined(tree: dict, path: str = "") -> dict[str, Any]:
    """`{"a": {"b": 1}}` as `{"a.b": 1}`, and what JSON makes of the values."""
    fields = {}
    for name, value in json.loads(json.dumps(tree, default=str)).items():
        below = f"{path}.{name}" if path else name
        nested = isinstance(value, dict)
        fields.update(_joined(value, below) if nested else {below: value})
    return fields


def write_json(path: Path, content: Any) -> None:
    """Writes atomically: a reader sees the old file or the new one."""
    half = path.with_name(f"{path.name}.{os.getpid()}")
    half.write_text(json.dumps(content, indent=1, default=str) + "\n")
    half.replace(path)
