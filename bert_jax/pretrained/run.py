"""A training step of `train`, as the loop saved it, read as a checkpoint.

Beside its arrays lies a record: the config and the tokenizer's fingerprint of the run,
and a digest of every array, for Orbax returns a flipped bit without a word.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from flax import linen as nn

from bert_jax import digests
from bert_jax.files import read_object
from bert_jax.pretrained import hub, orbax, pooling
from bert_jax.pretrained.checkpoint import Checkpoint
from bert_jax.pretrained.families import FAMILIES
from bert_jax.pretrained.huggingface import read_tokenizer
from bert_jax.tokenizers import Tokenizer

RECORD = "record/metadata"
STEPS = "checkpoints"
# What was trained beside the model and is another one: ELECTRA's generator.
BESIDE = ("generator",)


def find(directory: Path) -> Path | None:
    """The step that a directory is, or the newest of its run; None for no run."""
    if (directory / RECORD).is_file():
        return directory
    for folder in (directory, directory / STEPS):
        steps = [path.parents[1] for path in folder.glob(f"*/{RECORD}")]
        whole = [path for path in steps if path.name.isdecimal()]
        if whole:
            return max(whole, key=lambda path: int(path.name))
    return None


def refuse_unfinished(directory: Path) -> None:
    """Raises ValueError for the work directory of a run that has saved nothing yet."""
    file = directory / "config.json"
    if file.is_file() and "encoder.model_type" in read_object(file):
        raise ValueError(
            f"{directory} is the work directory of a run without a checkpoint; let it "
            "train until it has saved one"
        )


def read(step: Path) -> Checkpoint:
    """Reads `checkpoints/<n>`; the tokenizer is looked for where the run had it."""
    record = read_object(step / RECORD)
    if digests.sign(record)["crc32"] != record.get("crc32"):
        raise ValueError(f"{step / RECORD} is damaged; load another step")
    params = orbax.read_tree(step / "state", "params")
    refuse_damage(step, params, record["leaves"])
    params = {name: x for name, x in params.items() if name not in BESIDE}
    said, data = record["meta"]["config"], record["meta"]["data"]
    return Checkpoint(
        head_on(encoder_config(step, said).build(), params),
        params,
        read_tokenizer_of(step, said, record["meta"]["tokenizer"]),
        labels=tuple(data.get("labels", ())),
        max_length=said.get("task.max_length"),
    )


def refuse_damage(step: Path, params: Any, saved: digests.Leaves) -> None:
    """Raises ValueError where an array is not what was saved."""
    expected = {k: v for k, v in saved.items() if k.startswith("params/")}
    changed = digests.differences(expected, digests.leaves({"params": params}))
    if changed:
        raise ValueError(
            f"{step} is damaged: {digests.some(changed)} changed since it was saved; "
            "load another step"
        )


def encoder_config(step: Path, said: Mapping[str, Any]) -> Any:
    """The run's encoder config, validated."""
    start = "encoder."
    fields = {k.removeprefix(start): v for k, v in said.items() if k.startswith(start)}
    kind = FAMILIES[fields["model_type"]].config
    unknown = fields.keys() - kind.__dataclass_fields__.keys()
    if unknown:
        raise ValueError(
            f"{step} has unknown encoder fields: {', '.join(sorted(unknown))}; "
            "load it with the version of bert_jax that wrote it"
        )
    lists = {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}
    config = kind(**lists)
    config.validate()
    return config


def head_on(encoder: nn.Module, params: Mapping[str, Any]) -> nn.Module:
    """The family's head that has these parameters."""
    family = FAMILIES[encoder.config.model_type]
    parts = params.keys() - {"encoder"}
    for head in family.heads.values():
        if {name.split("/")[0] for name in head.names} == parts:
            known = head.module.__dataclass_fields__.keys() & {"num_labels"}
            classes = {name: len(params["classifier"]["bias"]) for name in known}
            return head.module(encoder, **head.fixed | classes)
    raise ValueError(
        f"no head of a {encoder.config.model_type} has the parameters "
        f"{', '.join(sorted(parts))}; load the directory model/ of the run"
    )


def read_tokenizer_of(step: Path, said: Mapping[str, Any], mark: str) -> Tokenizer:
    """The tokenizer with the fingerprint `mark`, from one of the run's directories."""
    workdir, places = step.absolute().parents[1], []
    for place in tokenizer_places(workdir, said):
        places.append(place)
        found = read_tokenizer(place) if place.is_dir() else None
        if found is not None and found.fingerprint == mark:
            return found
    raise ValueError(
        f"the tokenizer that {step} was trained with is gone from the places where it "
        f"was: {', '.join(map(str, places))}\n"
        f"put it into {workdir / 'data/tokenizer'}"
    )


def tokenizer_places(workdir: Path, said: Mapping[str, Any]) -> Iterator[Path]:
    """Where a run may have its tokenizer, the likeliest first."""
    yield workdir / "model"
    yield workdir / "data/tokenizer"
    if said.get("task.prepared"):
        yield Path(said["task.prepared"]) / "tokenizer"
    for field in ("task.tokenizer", "task.init_from", "init_from"):
        if said.get(field):
            path = Path(said[field])
            source = path if path.exists() else hub.fetch(said[field])
            yield pooling.transformer_directory(source)
