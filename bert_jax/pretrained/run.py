"""Checkpoints of a training run, as the loop saved them, read as a `Checkpoint`.

A record lies beside the arrays. It has the run's config, its tokenizer's fingerprint
and a checksum of every array, because Orbax returns a flipped bit without an error.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from flax import linen as nn

from bert_jax import digests
from bert_jax.files import local_path, read_object
from bert_jax.models import heads
from bert_jax.models.config import EncoderConfig
from bert_jax.pretrained import huggingface, modules, weights
from bert_jax.pretrained.checkpoint import Checkpoint
from bert_jax.pretrained.families import FAMILIES, family_of
from bert_jax.tokenizers import Tokenizer

RECORD = "record/metadata"
STEPS = "checkpoints"
# Parameters of a second model that was trained with it: ELECTRA's generator.
EXTRA_MODELS = ("generator",)


def find_step(directory: Path) -> Path | None:
    """The directory itself if it is a step, or the newest step of its run, or None."""
    if (directory / RECORD).is_file():
        return directory
    for folder in (directory, directory / STEPS):
        steps = [path.parents[1] for path in folder.glob(f"*/{RECORD}")]
        complete = [path for path in steps if path.name.isdecimal()]
        if complete:
            return max(complete, key=lambda path: int(path.name))
    return None


def check_has_step(directory: Path) -> None:
    """Raises ValueError for the work directory of a run that has saved nothing yet."""
    file = directory / "config.json"
    if file.is_file() and "encoder.model_type" in read_object(file):
        raise ValueError(
            f"{directory} is the work directory of a run without a checkpoint; let it "
            "train until it has saved one"
        )


def read(step: Path) -> Checkpoint:
    """Reads `checkpoints/<n>`, with the tokenizer from where the run had it."""
    record = read_object(step / RECORD)
    if digests.sign(record)["crc32"] != record.get("crc32"):
        raise ValueError(f"{step / RECORD} is damaged; load another step")
    params = weights.read_orbax(step / "state", "params")
    check_arrays(step, params, record["leaves"])
    params = {name: x for name, x in params.items() if name not in EXTRA_MODELS}
    config, data = record["meta"]["config"], record["meta"]["data"]
    return Checkpoint(
        head_on(encoder_config(step, config).build(), params, data.get("pooling")),
        params,
        read_tokenizer(step, config, record["meta"]["tokenizer"]),
        labels=tuple(data.get("labels", ())),
        max_length=config.get("task.max_length"),
    )


def start_of(step: Path) -> str | None:
    """The model that the run of a step started from, if any."""
    return read_object(step / RECORD)["meta"]["config"].get("init_from")


def check_arrays(step: Path, params: Mapping[str, Any], saved: digests.Leaves) -> None:
    """Raises ValueError for an array that differs from the one that was saved."""
    expected = {k: v for k, v in saved.items() if k.startswith("params/")}
    changed = digests.differences(expected, digests.leaves({"params": params}))
    if changed:
        raise ValueError(
            f"{step} is damaged: {digests.some(changed)} changed since it was saved; "
            "load another step"
        )


def encoder_config(step: Path, config: Mapping[str, Any]) -> EncoderConfig:
    """The encoder's config of a run, validated, from the run's by dotted names."""
    start = "encoder."
    fields = {
        k.removeprefix(start): tuple(v) if isinstance(v, list) else v
        for k, v in config.items()
        if k.startswith(start)
    }
    kind = FAMILIES[config["encoder.model_type"]].config
    unknown = fields.keys() - kind.__dataclass_fields__.keys()
    if unknown:
        raise ValueError(
            f"{step} has unknown encoder fields: {', '.join(sorted(unknown))}; "
            "load it with the version of bert_jax that wrote it"
        )
    encoder = kind(**fields)
    encoder.validate()
    return encoder


def head_on(
    encoder: nn.Module, params: Mapping[str, Any], pooling: str | None = None
) -> nn.Module:
    """The family's head that has these parameters.

    With a `pooling`, it is a classifier whose last layer reads the pooled vector.
    """
    family, parts = family_of(encoder.config), params.keys() - {"encoder"}
    pooled: dict[str, Any] = {}
    if pooling:
        own = family.heads[family.architecture(heads.SequenceClassifier)]
        parts, pooled = {*own.names}, {"pooling": pooling, "hidden_act": None}
    for head in family.heads.values():
        if {name.split("/")[0] for name in head.names} == parts:
            fields: dict[str, Any] = dict(head.defaults) | pooled
            if "num_labels" in head.module.__dataclass_fields__:
                fields["num_labels"] = len(params["classifier"]["bias"])
            return head.module(encoder, **fields)
    raise ValueError(
        f"no head of a {encoder.config.model_type} has the parameters "
        f"{', '.join(sorted(parts))}; load the directory model/ of the run"
    )


def read_tokenizer(
    step: Path, config: Mapping[str, Any], fingerprint: str
) -> Tokenizer:
    """The tokenizer with this fingerprint, from one of the run's directories."""
    workdir, places = step.absolute().parents[1], []
    for place in tokenizer_places(workdir, config):
        places.append(place)
        tokenizer = huggingface.read_tokenizer(place) if place.is_dir() else None
        if tokenizer is not None and tokenizer.fingerprint == fingerprint:
            return tokenizer
    raise ValueError(
        f"the tokenizer that {step} was trained with is in none of the places where it "
        f"was: {', '.join(map(str, places))}\n"
        f"copy it to {workdir / 'data/tokenizer'}"
    )


def tokenizer_places(workdir: Path, config: Mapping[str, Any]) -> Iterator[Path]:
    """The directories where a run may have its tokenizer, the likeliest first."""
    yield workdir / "model"
    yield workdir / "data/tokenizer"
    if config.get("task.prepared"):
        yield local_path(config["task.prepared"]) / "tokenizer"
    for field in ("task.tokenizer", "task.init_from", "init_from"):
        if config.get(field):
            path = local_path(config[field])
            source = path if path.exists() else huggingface.fetch(config[field])
            yield modules.transformer_directory(source)
