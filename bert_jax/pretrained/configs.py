"""A published config.json <-> our encoder's config, its head and its labels."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from flax import linen as nn

from bert_jax.models.bert import BertConfig
from bert_jax.pretrained.families import FAMILIES
from bert_jax.pretrained.names import Family, Head, module_of

# What is refused where config.json says otherwise: no family here computes it.
DEMANDED = {
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
    "summary_type": "first",
    "summary_use_proj": True,
}


def family_of(published: Mapping[str, Any]) -> Family:
    """The family that config.json names."""
    name = published.get("model_type")
    if name not in FAMILIES:
        raise ValueError(
            f"model_type={name!r} is unknown; config.json must name one of "
            f"{', '.join(FAMILIES)}"
        )
    for field, value in DEMANDED.items():
        if published.get(field, value) != value:
            raise ValueError(
                f"{field}={published[field]!r} is not supported; only {value!r} is"
            )
    return FAMILIES[name]


def encoder_config(published: Mapping[str, Any], family: Family) -> BertConfig:
    """The encoder's config, validated."""
    values = dict(family.defaults)
    for field in dataclasses.fields(BertConfig):
        name = family.fields.get(field.name, field.name)
        if name in published:
            values[field.name] = published[name]
    values |= family.fixed
    values["dtype"] = "float32"
    config = BertConfig(**values)
    for field, value in family.derived.items():
        setattr(config, field, value(config))
    config.validate()
    return config


def head_of(
    published: Mapping[str, Any], family: Family, tensors: Iterable[str]
) -> Head:
    """The head that config.json names, or the largest one that the tensors make up."""
    if not published.get("architectures"):
        return richest_head(family, tensors)
    architecture = published["architectures"][0]
    if architecture not in family.heads:
        raise ValueError(
            f"architectures=[{architecture!r}] is unknown; config.json must name one "
            f"of {', '.join(family.heads)}"
        )
    return family.heads[architecture]


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
        values["num_labels"] = len(labels_of(published, published.get("num_labels", 2)))
    if "has_pooler" in known:
        values["has_pooler"] = any(
            name.startswith(tuple(head.names.values())) for name in tensors
        )
    return head.module(encoder, **values)


def publish(
    module: nn.Module, family: Family, architecture: str, labels: tuple[str, ...]
) -> dict[str, Any]:
    """What config.json says about a model."""
    config, head = module.encoder.config, family.heads[architecture]
    ours = {"dtype", "position_offset", *family.fixed}  # not in a config.json
    if "embeddings/project" not in family.encoder:
        ours.add("embedding_size")
    if config.num_hidden_groups is None:
        ours |= {"num_hidden_groups", "inner_group_num"}
    values = {k: v for k, v in vars(config).items() if k not in ours}
    if "embedding_size" in values:
        values["embedding_size"] = config.embedding_size or config.hidden_size
    return {
        "architectures": [architecture],
        **{family.fields.get(k, k): v for k, v in values.items()},
        **{theirs: getattr(module, ours) for ours, theirs in head.fields.items()},
        **named(labels),
    }


def named(labels: tuple[str, ...]) -> dict[str, Any]:
    """Label names as config.json holds them; nothing where there are none."""
    if not labels:
        return {}
    return {
        "id2label": {str(i): name for i, name in enumerate(labels)},
        "label2id": {name: i for i, name in enumerate(labels)},
    }
