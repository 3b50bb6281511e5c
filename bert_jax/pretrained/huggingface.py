"""Directories of transformers and sentence-transformers <-> a checkpoint."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax import tokenizers
from bert_jax.files import read_object, write_json
from bert_jax.models import heads
from bert_jax.pretrained import configs, convert, orbax, pooling, weights
from bert_jax.pretrained.checkpoint import (
    Checkpoint,
    fixed_tensors,
    read_params,
    without_fixed,
)
from bert_jax.pretrained.families import FAMILIES
from bert_jax.pretrained.names import Family, Head
from bert_jax.tokenizers import Tokenizer


def read(directory: Path) -> Checkpoint:
    """Reads what transformers, sentence-transformers or `write` wrote."""
    inner = pooling.transformer_directory(directory)
    published = read_object(inner / "config.json")
    family = configs.family_of(published)
    published = family.settings(published)
    config = configs.encoder_config(published, family)
    tensors = read_tensors(inner, published, family, config)
    tensors, config = without_fixed(tensors, family, config)
    encoder = config.build()
    head = configs.head_of(published, family, tensors)
    module = configs.build(head, published, encoder, tensors)
    return Checkpoint(
        module,
        read_params(module, family, head, tensors),
        read_tokenizer(inner),
        configs.labels_of(published, getattr(module, "num_labels", 0)),
        pooling.read(directory),
        pooling.read_max_length(inner),
        configs.unread(published, module, family),
    )


def write(directory: Path, checkpoint: Checkpoint) -> None:
    """Writes config.json, model.safetensors, and what else there is."""
    published, family, head = _published(checkpoint)
    config = checkpoint.head.encoder.config
    flat = convert.flatten(checkpoint.params)
    tensors = convert.to_tensors(flat, family.names(head, flat, config))
    tensors |= fixed_tensors(family, config)
    if not config.tie_word_embeddings:
        copies = family.copies(head, config).items()
        tensors |= {name: tensors[original] for name, original in copies}
    if isinstance(checkpoint.head, heads.Features):
        tensors = {k.removeprefix(family.prefix): v for k, v in tensors.items()}
    write_settings(directory, checkpoint, published)
    weights.write(directory, tensors)


def write_orbax(directory: Path, checkpoint: Checkpoint) -> None:
    """The same with the parameters as Orbax writes them, in the folder `params`."""
    write_settings(directory, checkpoint, _published(checkpoint)[0])
    orbax.write(directory, checkpoint.params)


def write_settings(
    directory: Path, checkpoint: Checkpoint, published: Mapping[str, Any]
) -> None:
    """Writes all but the weights."""
    config = checkpoint.head.encoder.config
    directory.mkdir(parents=True, exist_ok=True)
    if checkpoint.tokenizer is not None:
        longest = checkpoint.max_length or config.max_length
        checkpoint.tokenizer.save(directory, {"model_max_length": longest})
    if checkpoint.pooling is not None:
        pooling.write(
            directory, checkpoint.pooling, checkpoint.max_length, config.hidden_size
        )
    write_json(directory / "config.json", {**checkpoint.extra, **published})


def _published(checkpoint: Checkpoint) -> tuple[dict[str, Any], Family, Head]:
    """What config.json says, and the family and the head that it is of."""
    module = checkpoint.head
    family = FAMILIES[module.encoder.config.model_type]
    architecture = family.architecture(type(module))
    published = configs.publish(module, family, architecture, checkpoint.labels)
    return published, family, family.heads[architecture]


def read_tensors(
    directory: Path, published: Mapping[str, Any], family: Family, config: Any
) -> dict[str, np.ndarray]:
    """The tensors of a directory, named as under a head."""
    if weights.format_of(directory) is None and orbax.has_params(directory):
        params = orbax.read(directory)
        head = configs.head_of(published, family, ())
        return convert.to_tensors(params, family.names(head, params, config))
    return with_prefix(weights.read(directory), family)


def with_prefix(
    tensors: Mapping[str, np.ndarray], family: Family
) -> dict[str, np.ndarray]:
    """A bare encoder's tensors, named as those of an encoder under a head."""
    if any(name.startswith(family.prefix) for name in tensors):
        return dict(tensors)
    return {family.prefix + name: value for name, value in tensors.items()}


def read_tokenizer(directory: Path) -> Tokenizer | None:
    """The tokenizer of a directory; None where it has none."""
    files = ("tokenizer.json", "vocab.txt", "vocab.json", "spiece.model")
    if any((directory / name).exists() for name in files):
        return tokenizers.load(directory)
    return None
