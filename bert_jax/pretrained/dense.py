"""Dense layers on pooled vectors, as sentence-transformers has them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.files import make_directory, read_object, write_json
from bert_jax.models.pooling import ACTIVATIONS, Dense
from bert_jax.pretrained import weights

# The modules of torch.nn that have the classes of activations; other classes are in
# `activation`.
_MODULES = {"Identity": "linear"}

# The fields of sentence-transformers for the vector of a text, and those of its tokens.
VECTOR, TOKENS = "sentence_embedding", "token_embeddings"


def read(folder: Path, source: str = VECTOR) -> Dense:
    """Reads the folder of a module. Raises ValueError for what is not supported.

    `source` is the field that the layer reads and replaces.
    """
    config = read_object(folder / "config.json")
    activation = _activation(folder, config)
    for field in ("module_input_name", "module_output_name"):
        _check(folder, field, config.get(field) or source, source)
    _check(folder, "use_residual", config.get("use_residual", False), False)
    tensors = weights.read(folder)
    shape = config.get("out_features"), config.get("in_features")
    kernel = tensors.get("linear.weight", np.zeros((0, 0)))
    bias = tensors.get("linear.bias", np.zeros(len(kernel)))
    if kernel.shape != shape or bias.shape != shape[:1]:
        raise ValueError(
            f"{folder} has linear.weight {list(kernel.shape)} and linear.bias "
            f"{list(bias.shape)}, but config.json has {list(shape)}; fetch it again"
        )
    kernel = np.ascontiguousarray(kernel.T, np.float32)
    return Dense(kernel, np.asarray(bias, np.float32), activation)


def write(folder: Path, layer: Dense, source: str = VECTOR) -> None:
    """Writes the folder of a module, which reads and replaces the field `source`."""
    make_directory(folder)
    inputs, outputs = layer.kernel.shape
    config = {
        "in_features": inputs,
        "out_features": outputs,
        "bias": True,
        "activation_function": class_path(layer.activation),
    }
    if source != VECTOR:
        config |= {"module_input_name": source, "module_output_name": source}
    kernel = np.ascontiguousarray(np.asarray(layer.kernel).T)
    tensors = {"linear.weight": kernel, "linear.bias": np.asarray(layer.bias)}
    write_json(folder / "config.json", config)
    weights.write(folder, tensors)


def class_path(activation: str) -> str:
    """The path of an activation's class in PyTorch.

    >>> class_path("Identity")
    'torch.nn.modules.linear.Identity'
    """
    return f"torch.nn.modules.{_MODULES.get(activation, 'activation')}.{activation}"


def _activation(folder: Path, config: Mapping[str, Any]) -> str:
    path = str(config.get("activation_function", "torch.nn.Tanh"))
    name = path.rpartition(".")[2]
    if not path.startswith("torch.nn.") or name not in ACTIVATIONS:
        raise ValueError(
            f"{folder}/config.json has activation_function={path!r:.60}, which is not "
            f"supported; only {', '.join(ACTIVATIONS)} of torch.nn are"
        )
    return name


def _check(folder: Path, field: str, value: Any, only: Any) -> None:
    if value != only:
        raise ValueError(
            f"{folder}/config.json has {field}={value!r:.60}, which is not supported; "
            f"only {only!r} is"
        )
