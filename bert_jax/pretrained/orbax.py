"""Parameters that Orbax wrote: the folder `params` beside a config.json.

    orbax.checkpoint.StandardCheckpointer().save(directory / "params", model.params)

in place of `model.safetensors` makes a directory that `load` reads. Orbax is imported
at first use; it does not notice damaged numbers, so safetensors is the better home.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from bert_jax.pretrained import convert

FOLDER = "params"


def has_params(directory: Path) -> bool:
    """Whether there is a folder that Orbax wrote."""
    return (directory / FOLDER / "_METADATA").is_file()


def read(directory: Path) -> dict[str, np.ndarray]:
    """Arrays by our paths, whatever devices they were saved from."""
    return convert.flatten(read_tree(directory / FOLDER))


def write(directory: Path, params: Mapping[str, Any]) -> None:
    """Writes the folder `params`."""
    import orbax.checkpoint as ocp

    arrays = jax.tree.map(np.asarray, dict(params))
    with ocp.StandardCheckpointer() as writer:
        writer.save((directory / FOLDER).absolute(), arrays)


def read_tree(path: Path, part: str | None = None) -> dict[str, Any]:
    """The arrays below `path`, or of these the branch named `part` alone."""
    import orbax.checkpoint as ocp

    path = path.absolute()
    handler = ocp.PyTreeCheckpointHandler()
    try:
        with ocp.Checkpointer(handler) as reader:
            there = handler.metadata(path).tree
            there = {part: there[part]} if part else there
            on_host = ocp.RestoreArgs(restore_type=np.ndarray)
            args = ocp.args.PyTreeRestore(
                item=there,
                restore_args=jax.tree.map(lambda _: on_host, there),
                partial_restore=True,
            )
            tree = reader.restore(path, args=args)
    except Exception as error:  # of many kinds
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise ValueError(f"{path} is damaged ({reason}); save it again") from error
    return tree[part] if part else tree
