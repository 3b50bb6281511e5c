"""A published checkpoint's directory <-> (module, params, tokenizer, labels)."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import linen as nn

from bert_jax import tokenizers
from bert_jax.models import heads
from bert_jax.pretrained import configs, convert, weights
from bert_jax.pretrained.families import FAMILIES
from bert_jax.pretrained.names import Family, Head
from bert_jax.tokenizers.base import Tokenizer


@dataclasses.dataclass
class Checkpoint:
    """What a directory holds: a head on an encoder, and what belongs to it."""

    module: nn.Module
    params: Mapping[str, Any]
    tokenizer: Tokenizer | None
    labels: tuple[str, ...] = ()


def load(source: str | Path) -> Checkpoint:
    """Reads a directory that transformers or `save` wrote.

    Raises:
      ValueError: for anything missing, damaged, unknown or contradictory.
    """
    directory = Path(source)
    if not directory.is_dir():
        raise ValueError(f"there is no directory {directory}; check the path")
    published = configs.read(directory)
    family = configs.family_of(published)
    _, head = configs.head_of(published, family)
    encoder = configs.encoder_config(published, family).build()
    tensors = with_prefix(weights.read(directory), family)
    extra = {}
    if head.module is heads.Features:
        extra["has_pooler"] = any(
            name.rpartition(".")[0] in head.names.values() for name in tensors
        )
    module = configs.build(head, published, encoder, **extra)
    params = read_params(module, family, head, tensors)
    labels = configs.labels_of(published) if has_labels(module) else ()
    return Checkpoint(module, params, read_tokenizer(directory), labels)


def save(
    directory: str | Path,
    module: nn.Module,
    params: Mapping[str, Any],
    tokenizer: Tokenizer | None = None,
    labels: tuple[str, ...] = (),
) -> None:
    """Writes a directory that transformers and `load` read.

    Args:
      directory: made where it is missing.
      module: a head of `bert_jax.models` on an encoder.
      params: its parameters.
      tokenizer: written beside them, unless it is None.
      labels: names of the classes.
    """
    directory = Path(directory)
    config = module.encoder.config
    family = FAMILIES[config.model_type]
    architecture = architecture_of(module, family)
    head = family.heads[architecture]
    flat = convert.flatten(params)
    tensors = convert.to_tensors(flat, family.names(head, flat, config))
    if not config.tie_word_embeddings:
        copies = family.copies(head, config).items()
        tensors |= {name: tensors[original] for name, original in copies}
    if isinstance(module, heads.Features):
        prefix = family.prefix + "."
        tensors = {name.removeprefix(prefix): x for name, x in tensors.items()}
    directory.mkdir(parents=True, exist_ok=True)
    if tokenizer is not None:
        tokenizer.save(directory)
    published = configs.publish(module, family, architecture, labels)
    text = json.dumps(published, indent=2, ensure_ascii=False) + "\n"
    (directory / "config.json").write_text(text, "utf-8")
    weights.write(directory, tensors)


def read_params(
    module: nn.Module, family: Family, head: Head, tensors: Mapping[str, np.ndarray]
) -> dict[str, Any]:
    """The parameters of `module` from a published checkpoint's tensors."""
    config = module.encoder.config
    shapes = parameter_shapes(module)
    return convert.to_params(
        tensors,
        shapes,
        names=family.names(head, shapes, config),
        copies=family.copies(head, config) if config.tie_word_embeddings else {},
        elsewhere=family.elsewhere(),
    )


def parameter_shapes(module: nn.Module) -> dict[str, tuple[int, ...]]:
    """The shape of every parameter by path; nothing is computed."""
    shape = (1, 2, 2) if isinstance(module, heads.MultipleChoice) else (1, 2)
    ids = jax.ShapeDtypeStruct(shape, np.int32)
    tree = jax.eval_shape(module.init, jax.random.key(0), ids)["params"]
    return {path: x.shape for path, x in convert.flatten(tree).items()}


def with_prefix(
    tensors: Mapping[str, np.ndarray], family: Family
) -> dict[str, np.ndarray]:
    """A bare encoder's tensors, named as those of an encoder under a head."""
    prefix = family.prefix + "."
    if any(name.startswith(prefix) for name in tensors):
        return dict(tensors)
    return {prefix + name: value for name, value in tensors.items()}


def architecture_of(module: nn.Module, family: Family) -> str:
    """The name under which a family publishes a head."""
    for architecture, head in family.heads.items():
        if head.module is type(module):
            return architecture
    raise ValueError(
        f"{type(module).__name__} has no published form in the family {family.prefix}; "
        "save its parameters with orbax instead"
    )


def has_labels(module: nn.Module) -> bool:
    """Whether a head answers with one of several named classes."""
    return isinstance(module, heads.SequenceClassifier | heads.TokenClassifier)


def read_tokenizer(directory: Path) -> Tokenizer | None:
    """The tokenizer of a directory; None where it has none."""
    files = ("tokenizer.json", "vocab.txt", "vocab.json", "spiece.model")
    if any((directory / name).exists() for name in files):
        return tokenizers.load(directory)
    return None
