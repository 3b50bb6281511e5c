"""Parameters <-> the tensors of a published file, by the tables of a family.

The rule: kernels are transposed. A kernel of ours is `[in, out]`; under a name that
ends in `weight` or `weights` it is published as `[out, in]`. Every other tensor is the
same in both. Several of ours may be parts of one published tensor, see `PART`, and a
published tensor may have one more axis, see `HEADS`.
"""

import dataclasses
import re
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import numpy as np
from flax import linen as nn
from flax import traverse_util

from bert_jax import files
from bert_jax.models import heads, layers
from bert_jax.models.config import EncoderConfig
from bert_jax.pretrained.family import Family, Head, module_of

Params = Mapping[str, Any]  # nested: {"encoder": {"embeddings": {"word": array}}}
Tensors = dict[str, np.ndarray]

# Part i of n of a published tensor, along its first axis.
PART = re.compile(r"\[(\d+)/(\d+)\]")
# A published tensor whose last axis is two, n heads and their sizes; `^T`: transposed.
HEADS = re.compile(r"(\^T)?\[(\d+)\]$")


def flatten(tree: Params) -> dict[str, Any]:
    """Parameters by path: `{"encoder/embeddings/word": ...}`."""
    return traverse_util.flatten_dict(tree, sep="/")


def read_params(
    module: nn.Module, family: Family, head: Head, tensors: Mapping[str, np.ndarray]
) -> dict[str, Any]:
    """The parameters of `module`, float32, from a published file's tensors.

    Raises ValueError that names the tensors that are missing, unknown or of another
    shape, the first few of many. Tensors of the family's other heads are left out with
    a warning.
    """
    config = module.encoder.config
    shapes, copies = parameter_shapes(module), family.copies(head, config)
    if not config.tie_word_embeddings:
        # The file has the bias of a tied embedding too, but nothing reads it.
        tensors, copies = {k: x for k, x in tensors.items() if k not in copies}, {}
    names = family.names(head, shapes, config)
    return _to_params(tensors, shapes, names, copies, family.head_names())


def to_tensors(params: Params, names: Mapping[str, str]) -> Tensors:
    """The tensors of a published file, by the names of `Family.names`."""
    # safetensors writes the bytes of a transposed view in the wrong order.
    tensors = {
        names[path]: np.ascontiguousarray(
            _transpose(path, names[path], np.asarray(value))
        )
        for path, value in flatten(params).items()
    }
    return _join_parts(_split_heads(tensors))


def parameter_shapes(module: nn.Module) -> dict[str, tuple[int, ...]]:
    """The shape of every parameter by path; nothing is computed.

    Few layers are traced, for most are alike and tracing 24 takes a second.
    """
    config: EncoderConfig = module.encoder.config
    few = config.truncated()
    shape = (1, 2, 2) if isinstance(module, heads.MultipleChoice) else (1, 2)
    ids = jax.ShapeDtypeStruct(shape, np.int32)
    init = module.clone(encoder=few.build()).init
    tree = jax.eval_shape(lambda ids: init(jax.random.key(0), ids)["params"], ids)
    shapes = {path: x.shape for path, x in flatten(tree).items()}
    last = few.num_hidden_layers - 1
    of_last = [path for path in shapes if path.startswith(f"encoder/layer_{last}/")]
    for i in set(config.layer_order) - set(range(last)):
        for path in of_last:
            shapes[path.replace(f"layer_{last}", f"layer_{i}")] = shapes[path]
    return shapes


def fixed_tensors(family: Family, config: EncoderConfig) -> Tensors:
    """Tensors of a published file that are not parameters: a table of sinusoids."""
    if not config.sinusoidal_pos_embds:
        return {}
    width = config.embedding_size or config.hidden_size
    table = layers.sinusoids(config.max_position_embeddings, width)
    return {family.prefix + family.encoder["embeddings/position"]: table}


def without_fixed(
    tensors: Mapping[str, np.ndarray], family: Family, config: EncoderConfig
) -> tuple[Tensors, EncoderConfig]:
    """The tensors that are parameters, and the config that they belong to.

    In transformers `sinusoidal_pos_embds` says how a table began, at another scale, and
    training may have changed it. A table that is not ours is a parameter.
    """
    tensors = dict(tensors)
    for name, table in fixed_tensors(family, config).items():
        published = tensors.get(name, table)
        # Another library's sine may round the last bit differently.
        if published.shape != table.shape or abs(published - table).max() > 1e-6:
            learnt: Any = {"sinusoidal_pos_embds": False}
            return tensors, dataclasses.replace(config, **learnt)
        tensors.pop(name, None)
    return tensors, config


def _to_params(
    tensors: Mapping[str, np.ndarray],
    shapes: Mapping[str, tuple[int, ...]],
    names: Mapping[str, str],
    copies: Mapping[str, str],
    head_names: set[str],
) -> dict[str, Any]:
    originals, problems = _without_copies(tensors, copies)
    parts = _merge_heads(_split_parts(originals, names.values()), names.values())
    params = {}
    for path, name in names.items():
        if name not in parts:
            problems.append(f"{name} is missing")
            continue
        value = _transpose(path, name, np.asarray(parts[name]))
        if value.shape != shapes[path]:
            expected = _transpose(path, name, np.empty(shapes[path], bool)).shape
            problems.append(f"{name} is {parts[name].shape}, not {expected}")
        params[path] = np.ascontiguousarray(value, np.float32)
    extra = sorted(set(parts) - set(names.values()))
    of_others = [name for name in extra if {name, module_of(name)} & head_names]
    problems += [f"{name} is unknown" for name in extra if name not in of_others]
    if problems:
        raise ValueError(
            f"the weights do not fit config.json in {len(problems)} places: "
            f"{files.first_few(problems, '; ', most=5)}\ntake both from the same model"
        )
    if of_others:
        warnings.warn(
            f"{len(of_others)} tensors belong to another head and were left out: "
            f"{files.first_few(of_others)}",
            stacklevel=5,
        )
    return traverse_util.unflatten_dict(params, sep="/")


def _transpose(path: str, name: str, value: np.ndarray) -> np.ndarray:
    """From the published orientation to ours, and back."""
    is_kernel = path.endswith("kernel") and name.endswith(("weight", "weights"))
    return value.T if is_kernel or "^T" in name else value


def _without_copies(
    tensors: Mapping[str, np.ndarray], copies: Mapping[str, str]
) -> tuple[Tensors, list[str]]:
    """The tensors, each once, and the problems of the repeated ones."""
    tensors, problems = dict(tensors), []
    for name, original in copies.items():
        if name not in tensors:
            continue
        copy = tensors.pop(name)
        if not np.array_equal(tensors.setdefault(original, copy), copy):
            problems.append(f"{name} differs from {original}, to which it is tied")
    return tensors, problems


def _split_parts(tensors: Mapping[str, np.ndarray], names: Iterable[str]) -> Tensors:
    """The tensors, split where `names` are of parts."""
    parts = dict(tensors)
    for name in names:
        part, whole = PART.search(name), PART.sub("", name)
        if not part or whole not in tensors:
            continue
        i, n = map(int, part.groups())
        size = -(-len(tensors[whole]) // n)
        parts[name] = tensors[whole][i * size : (i + 1) * size]
        parts.pop(whole, None)
    return parts


def _join_parts(tensors: Mapping[str, np.ndarray]) -> Tensors:
    """The tensors, with the parts of each concatenated."""
    parts: dict[str, list[np.ndarray]] = {}
    for name in sorted(tensors):  # of less than ten parts each
        parts.setdefault(PART.sub("", name), []).append(tensors[name])
    return {k: v[0] if len(v) == 1 else np.concatenate(v) for k, v in parts.items()}


def _merge_heads(tensors: Mapping[str, np.ndarray], names: Iterable[str]) -> Tensors:
    """The tensors, with heads and their sizes as one axis where `names` say so."""
    marked = {HEADS.sub("", name): name for name in names if HEADS.search(name)}
    merged = {marked.get(name, name): x for name, x in tensors.items()}
    for name in marked.values():
        # A tensor of another shape is reported later.
        if name in merged and merged[name].shape[-2:-1] == (_num_heads(name),):
            merged[name] = merged[name].reshape(*merged[name].shape[:-2], -1)
    return merged


def _split_heads(tensors: Mapping[str, np.ndarray]) -> Tensors:
    """The tensors, with heads and their sizes as two axes where their names say so."""
    return {
        HEADS.sub("", name): x.reshape(*x.shape[:-1], _num_heads(name), -1)
        if HEADS.search(name)
        else x
        for name, x in tensors.items()
    }


def _num_heads(name: str) -> int:
    match = HEADS.search(name)
    return int(match[2]) if match else 1
