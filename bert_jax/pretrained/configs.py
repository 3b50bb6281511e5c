"""A published config.json <-> our encoder's config, its head and its labels."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from flax import linen as nn

from bert_jax.pretrained.families import FAMILIES
from bert_jax.pretrained.names import Family, Head, module_of

# Fields of our config that say how it is computed, and no config.json has.
COMPUTE = ("dtype", "remat", "attention")
# Fields that follow from others where it is read.
OURS = ("position_offset", "attention_out_dropout")
# Fields of a head that change what it computes.
TELLING = ("hidden_act", "pooling", "use_bias", "has_norm", "decoder_bias")
# What is refused where config.json says otherwise: no family here computes it.
DEMANDED = {
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
    "summary_use_proj": True,
}


def family_of(published: Mapping[str, Any]) -> Family:
    """The family that config.json names."""
    name = published.get("model_type")
    if not isinstance(name, str) or name not in FAMILIES:
        raise ValueError(
            f"model_type={name!r} is unknown; config.json must name one of "
            f"{', '.join(FAMILIES)}"
        )
    for field, value in (DEMANDED | FAMILIES[name].demanded).items():
        if published.get(field, value) != value:
            raise ValueError(
                f"{field}={published[field]!r} is not supported; only {value!r} is"
            )
    return FAMILIES[name]


def encoder_config(published: Mapping[str, Any], family: Family) -> Any:
    """The encoder's config, validated."""
    values = dict(family.defaults)
    for field in dataclasses.fields(family.config):
        name = family.fields.get(field.name, field.name)
        if published.get(name) is not None and field.name not in COMPUTE:
            check_type(name, published[name], field.default)
            values[field.name] = published[name]
    config = family.config(**values | family.fixed)
    for field, value in family.derived.items():
        setattr(config, field, value(config))
    config.validate()
    return config


def check_type(name: str, value: Any, default: Any) -> None:
    """Raises ValueError for a value of another kind than the default's."""
    kind = int if default is None else type(default)
    fits = isinstance(value, int | float if kind is float else kind)
    if not fits or isinstance(value, bool) != (kind is bool):
        raise ValueError(
            f"{name}={value!r} in config.json is no {kind.__name__}; correct it"
        )


def head_of(
    published: Mapping[str, Any], family: Family, tensors: Iterable[str]
) -> Head:
    """The head that config.json names, or the largest one that the tensors make up."""
    if not published.get("architectures"):
        return richest_head(family, tensors)
    named = published["architectures"]
    for architecture, head in family.heads.items():
        if isinstance(named, list) and named[0] == architecture:
            return head
    raise ValueError(
        f"architectures={named!r} is unknown; config.json must name one of "
        f"{', '.join(family.heads)}"
    )


def richest_head(family: Family, tensors: Iterable[str]) -> Head:
    """The head with the most parts, all of which are there."""
    present = set(tensors)
    present |= {module_of(name) for name in present}
    complete = [
        head
        for head in family.heads.values()
        if all(
            name in present
            for part, name in head.names.items()
            if part not in ("pooler", "mlm/decoder")
        )
    ]
    return max(complete, key=lambda head: len(present & set(head.names.values())))


def labels_of(published: Mapping[str, Any], classes: int) -> tuple[str, ...]:
    """Label names by number; where config.json has none, those transformers gives."""
    names = published.get("id2label")
    if names:
        if not isinstance(names, dict) or not all(map(str.isdecimal, names)):
            raise ValueError(
                f"id2label={str(names):.60} in config.json does not give a name to "
                "each number; correct it"
            )
        return tuple(names[key] for key in sorted(names, key=int))
    return tuple(f"LABEL_{i}" for i in range(classes))


def build(
    head: Head,
    published: Mapping[str, Any],
    encoder: nn.Module,
    tensors: Iterable[str],
) -> nn.Module:
    """The head that config.json and the tensors describe, on `encoder`."""
    known = {field.name for field in dataclasses.fields(head.module)}
    values = dict(head.fixed)
    values |= {k: published[v] for k, v in head.fields.items() if v in published}
    if "num_labels" in known:
        classes = published.get("num_labels", 2)
        check_type("num_labels", classes, 2)
        values["num_labels"] = len(labels_of(published, classes))
    if "has_pooler" in known:
        values["has_pooler"] = any(
            name.startswith(tuple(head.names.values())) for name in tensors
        )
    for name, value in values.items():
        if isinstance(value, list | dict):
            raise ValueError(
                f"{name}={value!r:.60} in config.json is no single value; correct it"
            )
    return head.module(encoder, **values)


def publish(
    module: nn.Module, family: Family, architecture: str, labels: tuple[str, ...]
) -> dict[str, Any]:
    """What config.json says about a model."""
    config, head = module.encoder.config, family.heads[architecture]
    refuse_unsaid(module, head, architecture)
    unsaid = {*COMPUTE, *OURS, *family.fixed}
    if "embeddings/project" not in family.encoder:
        unsaid.add("embedding_size")
    if config.num_hidden_groups is None:
        unsaid |= {"num_hidden_groups", "inner_group_num"}
    if not config.sinusoidal_pos_embds:
        unsaid.add("sinusoidal_pos_embds")
    unsaid |= {name for name, value in vars(config).items() if value == ()}
    values = {k: v for k, v in vars(config).items() if k not in unsaid}
    if "embedding_size" in values:
        values["embedding_size"] = config.embedding_size or config.hidden_size
    return {
        "architectures": [architecture],
        **{family.fields.get(k, k): v for k, v in values.items()},
        **{theirs: getattr(module, ours) for ours, theirs in head.fields.items()},
        **named(labels, getattr(module, "num_labels", len(labels))),
    }


def unread(
    published: Mapping[str, Any], module: nn.Module, family: Family
) -> dict[str, Any]:
    """What config.json says and `publish` does not."""
    said = publish(module, family, family.architecture(type(module)), ())
    left_behind = {"id2label", "label2id", "num_labels", *_OF_THE_FILE, *said}
    return {k: v for k, v in published.items() if k not in left_behind}


# About the file that was read, not the model.
_OF_THE_FILE = ("dtype", "torch_dtype", "transformers_version", "_name_or_path")


def refuse_unsaid(module: nn.Module, head: Head, architecture: str) -> None:
    """Raises ValueError where a head computes what its published form does not."""
    for field in dataclasses.fields(module):
        if field.name not in TELLING or field.name in head.fields:
            continue
        value = getattr(module, field.name)
        said = head.fixed.get(field.name, field.default)
        if value != said:
            raise ValueError(
                f"{field.name}={value!r} cannot be said in the config.json of a "
                f"{architecture}, which has {said!r}; build the head with "
                "pretrained.new_head"
            )


def named(labels: tuple[str, ...], classes: int) -> dict[str, Any]:
    """Label names as config.json holds them; nothing where there are no classes."""
    if labels and len(labels) != classes:
        raise ValueError(
            f"{len(labels)} labels were given for {classes} classes; give one for each"
        )
    if not classes:
        return {}
    labels = labels or labels_of({}, classes)
    return {
        "id2label": {str(i): name for i, name in enumerate(labels)},
        "label2id": {name: i for i, name in enumerate(labels)},
    }
