"""Parameters that Orbax wrote: the folder `params` beside a config.json.

    orbax.checkpoint.StandardCheckpointer().save(directory / "params", model.params)

in place of `model.safetensors` makes a directory that `load` reads. Orbax is imported
at first use; it does not notice damaged numbers, so safetensors is the better home.
"""

from pathlib import Path

import jax
import numpy as np

from bert_jax.pretrained import convert

FOLDER = "params"


def has_params(directory: Path) -> bool:
    """Whether there is a folder that Orbax wrote."""
    return (directory / FOLDER / "_METADATA").is_file()


def read(directory: Path) -> dict[str, np.ndarray]:
    """Arrays by our paths, whatever devices they were saved from."""
    import orbax.checkpoint as ocp

    path = (directory / FOLDER).absolute()
    try:
        with ocp.PyTreeCheckpointer() as reader:
            there = reader.metadata(path).item_metadata.tree
            on_host = ocp.RestoreArgs(restore_type=np.ndarray)
            args = jax.tree.map(lambda _: on_host, there)
            return convert.flatten(reader.restore(path, restore_args=args))
    except Exception as error:  # of many kinds
        reason = str(error).splitlines()[0][:200]
        raise ValueError(f"{path} is damaged ({reason}); save it again") from error
