"""Files of tensors: safetensors, whole or in shards; never pickles."""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import safetensors
import safetensors.numpy

WHOLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLES = (".bin", ".pt", ".pth", ".pkl", ".ckpt")


def read(directory: Path) -> dict[str, np.ndarray]:
    """The tensors of a directory, by the names PyTorch gives them."""
    if (directory / WHOLE).exists():
        return renamed(read_safetensors(directory / WHOLE))
    if (directory / INDEX).exists():
        return renamed(read_shards(directory / INDEX))
    refuse_pickles(directory)
    raise ValueError(
        f"{directory} has no weights; it needs {WHOLE}, {INDEX} or flax_model.msgpack"
    )


def write(directory: Path, tensors: Mapping[str, np.ndarray]) -> None:
    """Writes model.safetensors as transformers does."""
    safetensors.numpy.save_file(
        dict(tensors), directory / WHOLE, metadata={"format": "pt"}
    )


def read_safetensors(path: Path) -> dict[str, np.ndarray]:
    """The tensors of one file; a damaged one is refused."""
    try:
        return safetensors.numpy.load_file(path)
    except (safetensors.SafetensorError, OSError) as error:
        raise ValueError(
            f"{path} is damaged ({error}); fetch or save it again"
        ) from error


def read_shards(index: Path) -> dict[str, np.ndarray]:
    """The tensors of every file that an index names."""
    files = sorted(set(json.loads(index.read_text("utf-8"))["weight_map"].values()))
    missing = [name for name in files if not (index.parent / Path(name).name).exists()]
    if missing:
        raise ValueError(
            f"{index} names files that are not there: {', '.join(missing)}; "
            "fetch them again"
        )
    tensors = {}
    for name in files:
        tensors |= read_safetensors(index.parent / Path(name).name)
    return tensors


def renamed(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Tensors by today's names; buffers, which are no parameters, are left out."""
    return {
        name.replace("LayerNorm.gamma", "LayerNorm.weight").replace(
            "LayerNorm.beta", "LayerNorm.bias"
        ): value
        for name, value in tensors.items()
        if not name.endswith(("embeddings.position_ids", "embeddings.token_type_ids"))
    }


def refuse_pickles(directory: Path) -> None:
    """Raises ValueError when the weights are there, but as a pickle."""
    found = sorted(p for p in directory.iterdir() if p.suffix in PICKLES)
    if found:
        raise ValueError(
            f"{found[0]} is a pickle, which can run code when it is read; convert it "
            f"where you trust it:\n{CONVERT.format(found[0], directory / WHOLE)}"
        )


CONVERT = (
    'python -c "import torch, safetensors.torch as s; '
    "w = torch.load('{}', weights_only=True); "
    "s.save_file({{k: v.contiguous().clone() for k, v in w.items()}}, '{}')\""
)
