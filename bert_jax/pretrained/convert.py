"""The one rule between a published file's tensors and ours: transpose the kernels.

A kernel of ours is `[in, out]`; under a name that ends in `weight` or `weights` it is
published as `[out, in]`. Every other tensor is as ours. Several of ours may be parts of
one of theirs, see `PART`, and theirs may have one more axis, see `HEADS`.
"""

import re
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from flax import traverse_util

from bert_jax.pretrained.names import module_of

# Of a name: part i of n of the tensor, along its first axis.
PART = re.compile(r"\[(\d+)/(\d+)\]")
# Of a name: the last axis is published as n heads and their sizes; `^T`: turned.
HEADS = re.compile(r"(\^T)?\[(\d+)\]$")


def flatten(tree: Mapping[str, Any]) -> dict[str, Any]:
    """A parameter tree by path: `{"encoder/embeddings/word": ...}`."""
    return traverse_util.flatten_dict(tree, sep="/")


def to_params(
    tensors: Mapping[str, np.ndarray],
    shapes: Mapping[str, tuple[int, ...]],
    names: Mapping[str, str],
    copies: Mapping[str, str],
    elsewhere: set[str],
) -> dict[str, Any]:
    """Parameters, as float32, of a published checkpoint's tensors.

    Args:
      tensors: the file's, by name.
      shapes: ours, by path.
      names: path -> name.
      copies: names of tensors the file may repeat -> the tensors they repeat.
      elsewhere: names of the family's other heads, whose tensors are left out with a
        warning.

    Raises:
      ValueError: naming every tensor that is missing, unknown or misshapen.
    """
    tensors, problems = without_copies(tensors, copies)
    tensors = merged(parted(tensors, names.values()), names.values())
    params = {}
    for path, name in names.items():
        if name not in tensors:
            problems.append(f"{name} is missing")
            continue
        value = turned(path, name, np.asarray(tensors[name]))
        if value.shape != shapes[path]:
            wanted = turned(path, name, np.empty(shapes[path], bool)).shape
            problems.append(f"{name} is {tensors[name].shape}, not {wanted}")
        params[path] = np.ascontiguousarray(value, np.float32)
    extra = sorted(set(tensors) - set(names.values()))
    spare = [name for name in extra if {name, module_of(name)} & elsewhere]
    problems += [f"{name} is unknown" for name in extra if name not in spare]
    if problems:
        raise ValueError(
            f"the weights do not fit config.json in {len(problems)} places: "
            f"{'; '.join(problems)}\ntake both from the same model"
        )
    if spare:
        warnings.warn(
            f"{len(spare)} tensors belong to another head and were left out: "
            f"{', '.join(spare)}",
            stacklevel=4,
        )
    return traverse_util.unflatten_dict(params, sep="/")


def to_tensors(
    params: Mapping[str, Any], names: Mapping[str, str]
) -> dict[str, np.ndarray]:
    """A published checkpoint's tensors, by name."""
    # safetensors writes the bytes of a transposed view in the wrong order.
    tensors = {
        names[path]: np.ascontiguousarray(turned(path, names[path], np.asarray(value)))
        for path, value in flatten(params).items()
    }
    return joined(apart(tensors))


def merged(
    tensors: Mapping[str, np.ndarray], names: Iterable[str]
) -> dict[str, np.ndarray]:
    """The tensors, heads and their sizes made one axis where names say they are two."""
    marked = {HEADS.sub("", name): name for name in names if HEADS.search(name)}
    found = {marked.get(name, name): x for name, x in tensors.items()}
    for name in marked.values():
        # Others are told by their shape.
        if name in found and found[name].shape[-2:-1] == (_heads(name),):
            found[name] = found[name].reshape(*found[name].shape[:-2], -1)
    return found


def apart(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The tensors, the last axis of those whose names say so made two."""
    return {
        HEADS.sub("", name): x.reshape(*x.shape[:-1], _heads(name), -1)
        if HEADS.search(name)
        else x
        for name, x in tensors.items()
    }


def _heads(name):
    return int(HEADS.search(name)[2])


def parted(
    tensors: Mapping[str, np.ndarray], names: Iterable[str]
) -> dict[str, np.ndarray]:
    """The tensors, those of which names are parts cut into these."""
    found = dict(tensors)
    for name in names:
        part, whole = PART.search(name), PART.sub("", name)
        if not part or whole not in tensors:
            continue
        i, n = map(int, part.groups())
        size = -(-len(tensors[whole]) // n)
        found[name] = tensors[whole][i * size : (i + 1) * size]
        found.pop(whole, None)
    return found


def joined(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The tensors, the parts of each put together."""
    parts: dict[str, list] = {}
    for name in sorted(tensors):  # of less than ten parts each
        parts.setdefault(PART.sub("", name), []).append(tensors[name])
    return {k: v[0] if len(v) == 1 else np.concatenate(v) for k, v in parts.items()}


def turned(path: str, name: str, value: np.ndarray) -> np.ndarray:
    """From their orientation to ours, and back."""
    turns = path.endswith("kernel") and name.endswith(("weight", "weights"))
    return value.T if turns or "^T" in name else value


def without_copies(
    tensors: Mapping[str, np.ndarray], copies: Mapping[str, str]
) -> tuple[dict[str, np.ndarray], list[str]]:
    """The tensors, each once, and what is wrong with the repeated ones."""
    tensors, problems = dict(tensors), []
    for name, original in copies.items():
        if name not in tensors:
            continue
        copy = tensors.pop(name)
        if not np.array_equal(tensors.setdefault(original, copy), copy):
            problems.append(f"{name} differs from {original}, to which it is tied")
    return tensors, problems
