"""A published config.json <-> our encoder's config, its head and its labels."""

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from flax import linen as nn

from bert_jax.files import read_object
from bert_jax.models import heads
from bert_jax.models.config import EncoderConfig
from bert_jax.pretrained.checkpoint import Checkpoint, Settings
from bert_jax.pretrained.families import FAMILIES, family_of
from bert_jax.pretrained.family import Family, Head, module_of

Json = Mapping[str, Any]

# A classifier on a pooled vector is published by no family. Its config.json names the
# pooling, and a model type of our own, which other libraries refuse: they would add the
# missing layer with random numbers.
POOLED_TYPE = "pooled_"
POOLED_BY = "classifier_input"

# Fields of our config about the computation, which no config.json has.
COMPUTE = ("dtype", "remat", "attention")
# Fields that follow from others when config.json is read.
DERIVED = ("position_offset", "attention_out_dropout")
# Fields of a head that change the numbers it computes.
HEAD_FIELDS = ("hidden_act", "pooling", "use_bias", "has_norm", "decoder_bias")
# Fields of a head that follow from what it was trained on.
ABOUT_LABELS = ("problem_type",)
# Fields of config.json that follow from the questions it was trained on: the threshold
# for "no answer" and the windows.
ABOUT_ANSWERS = ("null_threshold", "doc_stride", "max_query")
# The field of config.json for the part of a long text that a classifier reads.
ABOUT_TEXTS = ("truncation",)
# The field of config.json for the activation of scores, see `cross_encoder`.
ABOUT_SCORES = ("sentence_transformers",)
# Fields of a config.json about the file and not the model.
FILE_FIELDS = ("dtype", "torch_dtype", "transformers_version", "_name_or_path")
# The only values that any family supports.
REQUIRED = {
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
    "summary_use_proj": True,
    "pruned_heads": {},
    "quantization_config": None,
}


def read(file: Path) -> dict[str, Any]:
    """The content of a config.json, with the model type of the encoder."""
    published = read_object(file)
    name = published.get("model_type")
    if isinstance(name, str) and published.get(POOLED_BY):
        published["model_type"] = name.removeprefix(POOLED_TYPE)
    return published


def is_pooled(module: nn.Module) -> bool:
    """True for a classifier whose last layer reads the pooled vector of a row."""
    is_row = isinstance(module, heads.SequenceClassifier | heads.MultipleChoice)
    return is_row and module.hidden_act is None


def find_family(published: Json) -> Family:
    """The family that config.json names."""
    name = published.get("model_type")
    if not isinstance(name, str) or name not in FAMILIES:
        raise ValueError(
            f"model_type={name!r} is unknown; config.json must name one of "
            f"{', '.join(FAMILIES)}"
        )
    for field, value in (REQUIRED | dict(FAMILIES[name].required)).items():
        if published.get(field) not in (None, value):
            raise ValueError(
                f"{field}={published[field]!r:.60} is not supported; only {value!r} is"
            )
    return FAMILIES[name]


def encoder_config(published: Json, family: Family) -> EncoderConfig:
    """The encoder's config, validated."""
    values = dict(family.defaults)
    for field in dataclasses.fields(family.config):
        name = family.fields.get(field.name, field.name)
        if published.get(name) is not None and field.name not in COMPUTE:
            check_type(name, published[name], field.default)
            values[field.name] = published[name]
    config = family.config(**values | dict(family.fixed))
    for name, value in family.derived.items():
        setattr(config, name, value(config))
    config.validate()
    return config


def check_type(name: str, value: Any, default: Any) -> None:
    """Raises ValueError for a value of another type than the default."""
    kind = int if default is None else type(default)
    fits = isinstance(value, int | float if kind is float else kind)
    if not fits or isinstance(value, bool) != (kind is bool):
        raise ValueError(
            f"{name}={value!r} in config.json is not {kind.__name__}; correct it"
        )


def find_head(published: Json, family: Family, tensors: Iterable[str]) -> Head:
    """The head that config.json names, or the largest one with all its tensors."""
    if not published.get("architectures"):
        return largest_head(family, tensors)
    architectures = published["architectures"]
    for architecture, head in (*family.heads.items(), *family.read_as.items()):
        if isinstance(architectures, list) and architectures[0] == architecture:
            return head
    raise ValueError(
        f"architectures={architectures!r} is unknown; config.json must name one of "
        f"{', '.join(family.heads)}"
    )


def largest_head(family: Family, tensors: Iterable[str]) -> Head:
    """The head with the most parts, all of which are among the tensors."""
    present = set(tensors)
    present |= {module_of(name) for name in present}
    complete = [
        head
        for head in (*family.heads.values(), *family.read_as.values())
        if all(
            name in present
            for part, name in head.names.items()
            if part not in ("pooler", "mlm/decoder")
        )
    ]
    return max(complete, key=lambda head: len(present & set(head.names.values())))


def read_labels(published: Json, classes: int) -> tuple[str, ...]:
    """Names of the classes in order; without any, the ones that transformers uses."""
    names = published.get("id2label")
    if names:
        if not isinstance(names, dict) or not all(map(str.isdecimal, names)):
            raise ValueError(
                f"id2label={str(names):.60} in config.json does not give a name to "
                "each number; correct it"
            )
        ordered = tuple(names[key] for key in sorted(names, key=int))
        if sorted(map(int, names)) != list(range(len(names))):
            raise ValueError(
                f"id2label={str(names):.60} in config.json does not number its "
                f"{len(names)} labels from 0 to {len(names) - 1}; correct it"
            )
        repeated = [name for i, name in enumerate(ordered) if name in ordered[:i]]
        if repeated:
            raise ValueError(
                f"id2label in config.json has the label {repeated[0]!r} twice; give "
                "each its own name"
            )
        return ordered
    return tuple(f"LABEL_{i}" for i in range(classes))


def build_head(
    head: Head, published: Json, encoder: nn.Module, tensors: Iterable[str]
) -> nn.Module:
    """The head that config.json and the tensors describe, on `encoder`."""
    known = {field.name for field in dataclasses.fields(head.module)}
    values = dict(head.defaults)
    values |= {k: published[v] for k, v in head.fields.items() if v in published}
    if "pooling" in known and published.get(POOLED_BY):
        values |= {"hidden_act": None, "pooling": published[POOLED_BY]}
    if "num_labels" in known:
        classes = published.get("num_labels", 2)
        check_type("num_labels", classes, 2)
        values["num_labels"] = len(read_labels(published, classes))
    if "has_pooler" in known:
        values["has_pooler"] = any(
            name.startswith(tuple(head.names.values())) for name in tensors
        )
    for name, value in values.items():
        if isinstance(value, list | dict):
            raise ValueError(
                f"{name}={value!r:.60} in config.json is not a single value; correct it"
            )
    return head.module(encoder, **values)


def publish(
    module: nn.Module, family: Family, architecture: str, labels: tuple[str, ...]
) -> dict[str, Any]:
    """The config.json of a model."""
    config, head = module.encoder.config, family.heads[architecture]
    pooled: dict[str, Any] = {}
    if is_pooled(module):
        pooled = {"model_type": POOLED_TYPE + config.model_type}
        pooled[POOLED_BY] = module.pooling
    else:
        check_head_fields(module, head, architecture)
    omitted = {*COMPUTE, *DERIVED, *family.fixed}
    if "embeddings/project" not in family.encoder:
        omitted.add("embedding_size")
    if config.num_hidden_groups is None:
        omitted |= {"num_hidden_groups", "inner_group_num"}
    if not config.sinusoidal_pos_embds:
        omitted.add("sinusoidal_pos_embds")
    omitted |= {name for name, value in vars(config).items() if value == ()}
    values = {k: v for k, v in vars(config).items() if k not in omitted}
    if "embedding_size" in values:
        values["embedding_size"] = config.embedding_size or config.hidden_size
    return {
        "architectures": [architecture],
        **{family.fields.get(k, k): v for k, v in values.items()},
        **{theirs: getattr(module, ours) for ours, theirs in head.fields.items()},
        **label_fields(labels, getattr(module, "num_labels", len(labels))),
        **pooled,
    }


def other_fields(published: Json, module: nn.Module, family: Family) -> dict[str, Any]:
    """The fields of config.json that `publish` does not write."""
    written = publish(module, family, family.architecture(type(module)), ())
    known = {"id2label", "label2id", "num_labels", *FILE_FIELDS, *written}
    return {k: v for k, v in published.items() if k not in known}


def check_head_fields(module: nn.Module, head: Head, architecture: str) -> None:
    """Raises ValueError for a head whose published form would compute otherwise."""
    for field in dataclasses.fields(module):
        if field.name not in HEAD_FIELDS or field.name in head.fields:
            continue
        value = getattr(module, field.name)
        published = head.defaults.get(field.name, field.default)
        if value != published:
            raise ValueError(
                f"{field.name}={value!r} has no field in the config.json of a "
                f"{architecture}, which computes with {published!r}; build the head "
                "with pretrained.new_head"
            )


def settings_of(checkpoint: Checkpoint) -> Settings:
    """The settings of a model that another head on its encoder keeps, too."""
    module = checkpoint.head
    family = family_of(module.encoder.config)
    names = family.heads[family.architecture(type(module))].fields
    own = {
        theirs: getattr(module, ours)
        for ours, theirs in names.items()
        if ours not in ABOUT_LABELS and not is_pooled(module)
    }
    dropped = (*ABOUT_ANSWERS, *ABOUT_TEXTS, *ABOUT_SCORES)
    extra = {k: v for k, v in checkpoint.extra.items() if k not in dropped}
    return Settings(
        module.encoder.config.model_type,
        checkpoint.pooling,
        checkpoint.max_length,
        {**extra, **own},
    )


def label_fields(labels: tuple[str, ...], classes: int) -> dict[str, Any]:
    """The fields of config.json for labels; empty where there are no classes."""
    if labels and len(labels) != classes:
        raise ValueError(
            f"{len(labels)} labels were given for {classes} classes; give one for each"
        )
    if not classes:
        return {}
    labels = labels or read_labels({}, classes)
    return {
        "id2label": {str(i): name for i, name in enumerate(labels)},
        "label2id": {name: i for i, name in enumerate(labels)},
    }
