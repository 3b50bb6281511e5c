"""Files of tensors: safetensors, whole or in shards, or msgpack; never pickles."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import safetensors
import safetensors.numpy
from flax import serialization, traverse_util

from bert_jax.files import read_object

SAFETENSORS = "model.safetensors"
INDEX = "model.safetensors.index.json"
MSGPACK = "flax_model.msgpack"
PICKLES = (".bin", ".pt", ".pth", ".pkl", ".ckpt")

_CONVERT = (
    'python -c "import torch, safetensors.torch as s; '
    "w = torch.load('{}', weights_only=True); "
    "s.save_file({{k: v.clone() for k, v in w.items()}}, '{}')\""
)


def read(directory: Path) -> dict[str, np.ndarray]:
    """The tensors of a directory by the names PyTorch gives them today.

    Buffers, which are no parameters, are left out.
    """
    name = format_of(directory)
    if name is None:
        refuse_pickles(directory)
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
    """Writes model.safetensors as transformers does."""
    # `save_file` makes a file that only its owner can read.
    content = safetensors.numpy.save(dict(tensors), metadata={"format": "pt"})
    (directory / SAFETENSORS).write_bytes(content)


def format_of(directory: Path) -> str | None:
    """The file that holds a directory's weights; None where there is none."""
    return next((name for name in _READERS if (directory / name).is_file()), None)


def refuse_pickles(directory: Path) -> None:
    """Raises ValueError when the weights are there, but as a pickle."""
    found = sorted(path for path in directory.glob("*") if path.suffix in PICKLES)
    if found:
        raise ValueError(
            f"{found[0]} is a pickle, which can run code when it is read; if you trust "
            f"it, convert it with\n{_CONVERT.format(found[0], directory / SAFETENSORS)}"
        )


def _read_safetensors(path: Path) -> dict[str, np.ndarray]:
    try:
        tensors = safetensors.numpy.load_file(path)
    except (safetensors.SafetensorError, OSError) as error:
        raise ValueError(f"{path} is damaged ({error}); fetch it again") from error
    # The Flax models of transformers 4 could be saved so, too.
    if any(name.endswith(".kernel") for name in tensors):
        return dict(_as_pytorch(name, value) for name, value in tensors.items())
    return tensors


def _read_shards(index: Path) -> dict[str, np.ndarray]:
    shards = read_object(index).get("weight_map")
    files = list(shards.values()) if isinstance(shards, dict) else []
    if not files or not all(isinstance(name, str) for name in files):
        raise ValueError(f"{index} has no weight_map of file names; fetch it again")
    # A name with a folder in it could point anywhere.
    paths = {index.parent / Path(name).name for name in files}
    missing = sorted(path.name for path in paths if not path.is_file())
    if missing:
        raise ValueError(
            f"{index} names files that are not there: {', '.join(missing)}; "
            "fetch them again"
        )
    tensors = {}
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
    """A parameter of the Flax models of transformers 4, by its name in PyTorch."""
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
