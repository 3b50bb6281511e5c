"""Directories of transformers and sentence-transformers, local or on the Hub."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np

from bert_jax import tokenizers
from bert_jax.files import make_directory, write_json
from bert_jax.models import heads
from bert_jax.models.config import EncoderConfig
from bert_jax.pretrained import (
    config_json,
    convert,
    cross_encoder,
    late_interaction,
    modules,
    pooling,
    sparse_pooling,
    weights,
)
from bert_jax.pretrained.checkpoint import Checkpoint, Settings
from bert_jax.pretrained.families import family_of
from bert_jax.pretrained.family import Family, Head
from bert_jax.pretrained.late_interaction import LateInteraction
from bert_jax.tokenizers import Tokenizer

# A name on the Hub, with its owner or without.
NAME = re.compile(r"\w[\w.-]*(/[\w.-]+)?")
# Files to download: these, and of the weights one format.
_SETTINGS = ("*.json", "*.txt", "*.model")
_FORMATS = (("*.safetensors",), (weights.MSGPACK,))
# Folders of other programs, some of which hold weights too.
_IGNORED = ("onnx/*", "openvino/*", "coreml/*")


def read(directory: Path) -> Checkpoint:
    """Reads a directory of transformers, sentence-transformers or `write`."""
    inner = modules.transformer_directory(directory)
    published, is_stanford = read_config(directory, inner)
    family = config_json.find_family(published)
    published = dict(family.normalize(published))
    config = config_json.encoder_config(published, family)
    tensors = read_tensors(inner, published, family, config)
    vectors = {} if is_stanford else read_vectors(directory)
    if is_stanford:
        vectors["late"] = late_interaction.read_stanford(directory, tensors)
    tensors, config = convert.without_fixed(tensors, family, config)
    encoder = config.build()
    head = config_json.find_head(published, family, tensors)
    module = config_json.build_head(head, published, encoder, tensors)
    return Checkpoint(
        module,
        convert.read_params(module, family, head, tensors),
        read_tokenizer(inner, vectors.get("late")),
        config_json.read_labels(published, getattr(module, "num_labels", 0)),
        max_length=read_max_length(directory),
        extra=config_json.other_fields(published, module, family),
        **vectors,
    )


def read_config(directory: Path, inner: Path) -> tuple[dict[str, Any], bool]:
    """The content of config.json, and True for one of colbert-ir.

    That names an architecture of its own, whose encoder is one of the family.
    """
    published = config_json.read(inner / "config.json")
    is_stanford = late_interaction.is_stanford(published)
    if is_stanford:
        published.pop("architectures")
    return cross_encoder.read(directory, published), is_stanford


def read_settings(directory: Path) -> Settings:
    """The settings of a directory; no weights are read."""
    inner = modules.transformer_directory(directory)
    published, _ = read_config(directory, inner)
    family = config_json.find_family(published)
    published = dict(family.normalize(published))
    encoder = config_json.encoder_config(published, family).build()
    head = config_json.find_head(published, family, ())
    module = config_json.build_head(head, published, encoder, ())
    checkpoint = Checkpoint(
        module,
        {},
        max_length=read_max_length(directory),
        extra=config_json.other_fields(published, module, family),
        **read_vectors(directory),
    )
    return config_json.settings_of(checkpoint)


def read_vectors(directory: Path) -> dict[str, Any]:
    """The settings of the vectors that a directory is made for, as of `Checkpoint`."""
    if cross_encoder.is_cross_encoder(directory):
        return {}
    sparse, late = sparse_pooling.read(directory), late_interaction.read(directory)
    if sparse is None and late is None:
        return {"pooling": pooling.read(directory)}
    return {"sparse": sparse, "late": late}


def read_max_length(directory: Path) -> int | None:
    """The most tokens in a row that a directory sets; None if it sets no limit."""
    inner = modules.transformer_directory(directory)
    limits = modules.read_max_length(inner), late_interaction.read_max_length(directory)
    return min((n for n in limits if n), default=None)


def write(directory: Path, checkpoint: Checkpoint) -> None:
    """Writes config.json, model.safetensors, tokenizer and pooling."""
    published, family, head = _publish(checkpoint)
    config = checkpoint.head.encoder.config
    flat = convert.flatten(checkpoint.params)
    tensors = convert.to_tensors(flat, family.names(head, flat, config))
    tensors |= convert.fixed_tensors(family, config)
    if not config.tie_word_embeddings:
        copies = family.copies(head, config).items()
        tensors |= {name: tensors[original] for name, original in copies}
    if isinstance(checkpoint.head, heads.Features):
        tensors = {k.removeprefix(family.prefix): v for k, v in tensors.items()}
    write_settings(directory, checkpoint, published)
    weights.write(directory, tensors)


def write_orbax(directory: Path, checkpoint: Checkpoint) -> None:
    """The same with the parameters in Orbax's format, in the folder `params`."""
    write_settings(directory, checkpoint, _publish(checkpoint)[0])
    weights.write_orbax(directory, checkpoint.params)


def write_settings(
    directory: Path, checkpoint: Checkpoint, published: Mapping[str, Any]
) -> None:
    """Writes everything but the weights."""
    config = checkpoint.head.encoder.config
    make_directory(directory)
    if checkpoint.tokenizer is not None:
        max_length = checkpoint.max_length or config.max_length
        checkpoint.tokenizer.save(directory, {"model_max_length": max_length})
    if checkpoint.sparse is not None:
        sparse_pooling.write(
            directory, checkpoint.sparse, checkpoint.max_length, config.vocab_size
        )
    elif checkpoint.late is not None:
        late_interaction.write(directory, checkpoint.late, checkpoint.max_length)
    elif checkpoint.pooling is not None:
        pooling.write(
            directory, checkpoint.pooling, checkpoint.max_length, config.hidden_size
        )
    fields = {**checkpoint.extra, **published, **_special_ids(checkpoint)}
    write_json(directory / "config.json", fields)


def read_tensors(
    directory: Path,
    published: Mapping[str, Any],
    family: Family,
    config: EncoderConfig,
) -> dict[str, np.ndarray]:
    """The tensors of a directory, under their names in a model with a head."""
    if weights.find_file(directory) is None and weights.has_orbax(directory):
        params = convert.flatten(weights.read_orbax(directory / weights.ORBAX))
        head = config_json.find_head(published, family, ())
        return convert.to_tensors(params, family.names(head, params, config))
    tensors = weights.read(directory)
    if any(name.startswith(family.prefix) for name in tensors):
        return tensors
    return {family.prefix + name: value for name, value in tensors.items()}


def read_tokenizer(
    directory: Path, late: LateInteraction | None = None
) -> Tokenizer | None:
    """The tokenizer of a directory; None where it has none.

    The markers of late interaction are single pieces in it.
    """
    files = ("tokenizer.json", "vocab.txt", "vocab.json", "spiece.model")
    if any((directory / name).exists() for name in files):
        tokenizer = tokenizers.load(directory)
        prompts = (late.query_prompt, late.document_prompt) if late else ()
        return tokenizer.with_markers(prompts) if any(prompts) else tokenizer
    return None


def fetch(name: str) -> Path:
    """The directory of a model on the Hub: the local cache, or a download to it."""
    directory = cached(name)
    if directory is not None:
        return directory
    # A name on the Hub reads like a path below a directory, which may be here.
    if not NAME.fullmatch(name) or ("/" in name and Path(name).parent.is_dir()):
        raise ValueError(f"there is no directory {name}; check the path")
    for patterns in _FORMATS:
        directory = _download(name, [*_SETTINGS, *patterns])
        if weights.find_file(directory):
            return directory
    raise ValueError(
        f"{name} publishes neither safetensors nor {weights.MSGPACK}, and pickles are "
        "not read; convert it with transformers' save_pretrained"
    )


def cached(name: str) -> Path | None:
    """The directory of a model in the local cache; None if it is not there."""
    if not NAME.fullmatch(name):
        return None
    file = huggingface_hub.try_to_load_from_cache(name, "config.json")
    if isinstance(file, str) and weights.find_file(Path(file).parent):
        return Path(file).parent
    return None


def _download(name: str, patterns: list[str]) -> Path:
    try:
        return Path(
            huggingface_hub.snapshot_download(
                name, allow_patterns=patterns, ignore_patterns=list(_IGNORED)
            )
        )
    except OSError:  # of the network and of the Hub, all of them
        raise ValueError(
            f"{name} is not a directory, is not in the cache of the Hugging Face Hub, "
            "and cannot be fetched; check the name, go online, or give a directory "
            "with its files"
        ) from None


def _special_ids(checkpoint: Checkpoint) -> dict[str, int]:
    """The fields of config.json for the special tokens of the tokenizer."""
    if checkpoint.tokenizer is None:
        return {}
    fields = family_of(checkpoint.head.encoder.config).special_ids.items()
    return {name: getattr(checkpoint.tokenizer, token) for name, token in fields}


def _publish(checkpoint: Checkpoint) -> tuple[dict[str, Any], Family, Head]:
    """The config.json of a checkpoint, with its family and head."""
    module = checkpoint.head
    family = family_of(module.encoder.config)
    architecture = family.architecture(type(module))
    published = config_json.publish(module, family, architecture, checkpoint.labels)
    return published, family, family.heads[architecture]
