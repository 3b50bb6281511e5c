"""Files of parameters: safetensors, whole or in shards, msgpack, Orbax; never pickles.

The folder `params` beside a config.json is Orbax's:

    orbax.checkpoint.StandardCheckpointer().save(directory / "params", model.params)

in place of `model.safetensors` makes a directory that `load` reads. Orbax is imported
when it is used. It does not notice damaged numbers, so prefer safetensors.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import safetensors
import safetensors.numpy
from flax import serialization, traverse_util

from bert_jax.files import WriteError, read_object, write_bytes

SAFETENSORS = "model.safetensors"
INDEX = "model.safetensors.index.json"
MSGPACK = "flax_model.msgpack"
ORBAX = "params"
PICKLES = (".bin", ".pt", ".pth", ".pkl", ".ckpt")

_CONVERT = (
    'python -c "import torch, safetensors.torch as s; '
    "w = torch.load('{}', weights_only=True); "
    "s.save_file({{k: v.clone() for k, v in w.items()}}, '{}')\""
)


def read(directory: Path) -> dict[str, np.ndarray]:
    """The tensors of a directory, by their names in PyTorch.

    Buffers, which are not parameters, are left out.
    """
    name = find_file(directory)
    if name is None:
        check_no_pickles(directory)
        raise ValueError(
            f"{directory} has no weights; it needs one of {', '.join(_READERS)}"
        )
    tensors = _READERS[name](directory / name)
    return {
        name.replace("LayerNorm.gamma", "LayerNorm.weight").replace(
            "LayerNorm.beta", "LayerNorm.bias"
        ): value
        for name, value in tensors.items()
        if not name.endswith(("embeddings.position_ids", "embeddings.token_type_ids"))
    }


def write(directory: Path, tensors: Mapping[str, np.ndarray]) -> None:
    """Writes model.safetensors like transformers."""
    # A file that `save_file` writes can be read by its owner only.
    content = safetensors.numpy.save(dict(tensors), metadata={"format": "pt"})
    write_bytes(directory / SAFETENSORS, content)


def find_file(directory: Path) -> str | None:
    """The name of the file with a directory's weights; None where there is none."""
    return next((name for name in _READERS if (directory / name).is_file()), None)


def check_no_pickles(directory: Path) -> None:
    """Raises ValueError for a directory whose weights are a pickle."""
    pickles = sorted(path for path in directory.glob("*") if path.suffix in PICKLES)
    if pickles:
        command = _CONVERT.format(pickles[0], directory / SAFETENSORS)
        raise ValueError(
            f"{pickles[0]} is a pickle, which can run code when it is read; if you "
            f"trust it, convert it with\n{command}"
        )


def has_orbax(directory: Path) -> bool:
    """True for a directory with a folder that Orbax wrote."""
    return (directory / ORBAX / "_METADATA").is_file()


def read_orbax(path: Path, part: str | None = None) -> dict[str, Any]:
    """The arrays below `path`, on the host, or those of its branch `part` alone."""
    import orbax.checkpoint as ocp

    path = path.absolute()
    handler = ocp.PyTreeCheckpointHandler()
    try:
        with ocp.Checkpointer(handler) as reader:
            saved = handler.metadata(path).tree
            saved = {part: saved[part]} if part else saved
            on_host = ocp.RestoreArgs(restore_type=np.ndarray)
            args = ocp.args.PyTreeRestore(
                item=saved,
                restore_args=jax.tree.map(lambda _: on_host, saved),
                partial_restore=True,
            )
            tree = reader.restore(path, args=args)
    except Exception as error:  # of many kinds
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise ValueError(f"{path} is damaged ({reason}); save it again") from error
    return tree[part] if part else tree


def write_orbax(directory: Path, params: Mapping[str, Any]) -> None:
    """Writes the folder `params`."""
    import orbax.checkpoint as ocp

    arrays = jax.tree.map(np.asarray, dict(params))
    path = directory / ORBAX
    try:
        with ocp.StandardCheckpointer() as writer:
            writer.save(path.absolute(), arrays)
    except Exception as error:  # of many kinds
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise WriteError(f"{path} cannot be written ({reason})") from error


def _read_safetensors(path: Path) -> dict[str, np.ndarray]:
    try:
        tensors = safetensors.numpy.load_file(path)
    except (safetensors.SafetensorError, OSError) as error:
        raise ValueError(f"{path} is damaged ({error}); fetch it again") from error
    # The Flax models of transformers 4 could be saved in this format too.
    if any(name.endswith(".kernel") for name in tensors):
        return dict(_as_pytorch(name, value) for name, value in tensors.items())
    return tensors


def _read_shards(index: Path) -> dict[str, np.ndarray]:
    shards = read_object(index).get("weight_map")
    files = list(shards.values()) if isinstance(shards, dict) else []
    if not files or not all(isinstance(name, str) for name in files):
        raise ValueError(f"{index} has no weight_map of file names; fetch it again")
    # A name with a folder in it could point to any file.
    paths = {index.parent / Path(name).name for name in files}
    missing = sorted(path.name for path in paths if not path.is_file())
    if missing:
        raise ValueError(
            f"{index} names files that are missing: {', '.join(missing)}; "
            "fetch them again"
        )
    tensors: dict[str, np.ndarray] = {}
    for path in sorted(paths):
        tensors |= _read_safetensors(path)
    return tensors


def _read_msgpack(path: Path) -> dict[str, np.ndarray]:
    try:
        tree = serialization.msgpack_restore(path.read_bytes())
        tensors = traverse_util.flatten_dict(tree, sep=".")
    except Exception as error:  # msgpack raises many kinds
        raise ValueError(f"{path} is damaged ({error}); fetch it again") from error
    return dict(_as_pytorch(name, value) for name, value in tensors.items())


def _as_pytorch(name: str, value: np.ndarray) -> tuple[str, np.ndarray]:
    """A parameter of a Flax model of transformers 4, under its name in PyTorch."""
    parent, _, leaf = name.rpartition(".")
    value = np.asarray(value)
    if leaf == "kernel":
        # safetensors writes the bytes of a transposed view in the wrong order.
        return f"{parent}.weight", np.ascontiguousarray(value.T)
    return f"{parent}.{leaf if leaf == 'bias' else 'weight'}", value


_READERS: Mapping[str, Callable[[Path], dict[str, np.ndarray]]] = {
    SAFETENSORS: _read_safetensors,
    INDEX: _read_shards,
    MSGPACK: _read_msgpack,
}
