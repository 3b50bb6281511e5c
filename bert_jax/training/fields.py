"""Fields of a config by flat names: `learning_rate` is `optimizer.learning_rate`.

Names, types, defaults and descriptions come from the dataclasses and their docstrings.
`bert_jax.finetune`, `bert_jax.pretrain`, their commands and `train.py --help` use them.
"""

import contextlib
import dataclasses
import difflib
import inspect
import operator
import os
import re
import types
import typing
from collections.abc import Collection, Iterator, Mapping
from typing import Any

# Types of fields that have a flat name.
SIMPLE = (bool, int, float, str, tuple[str, ...], tuple[int, ...])

# Those of several values.
SEVERAL = (tuple[str, ...], tuple[int, ...])

# Names of other libraries, and former ones, by ours.
OTHER_NAMES = {
    "learning_rate": ("lr", "max_lr", "peak_lr", "peak_learning_rate"),
    "batch_size": (
        *("bs", "per_device_train_batch_size", "per_gpu_train_batch_size"),
        *("train_batch_size", "per_device_batch_size"),
    ),
    "epochs": ("num_epochs", "num_train_epochs", "n_epochs", "max_epochs", "epoch"),
    "num_steps": ("max_steps", "num_train_steps", "total_steps", "steps"),
    "max_length": (
        *("length", "max_seq_length", "max_seq_len", "max_len", "seq_len"),
        *("sequence_length", "block_size", "model_max_length"),
    ),
    "workdir": ("out", "output", "output_dir", "output_path", "out_dir", "logging_dir"),
    "model": ("init_from", "model_name_or_path", "model_name", "init_checkpoint"),
    "train": ("train_file", "train_dataset", "train_data", "training_data"),
    "dev": (
        *("validation_file", "eval_file", "eval_dataset", "dev_file", "validation"),
        *("valid", "eval", "eval_data"),
    ),
    "test": ("test_file", "predict_file", "test_dataset", "test_data"),
    "paths": ("input_file", "corpus", "text_files", "files", "data_dir"),
    "schedule": ("lr_scheduler_type", "lr_scheduler", "scheduler", "lr_schedule"),
    "warmup": ("warmup_ratio", "warmup_proportion"),
    "warmup_steps": ("num_warmup_steps",),
    "optimizer": ("optim", "optimizer_name", "optimizer_type"),
    "weight_decay": ("wd", "weight_decay_rate"),
    "clip_norm": ("max_grad_norm", "gradient_clip_val", "clip_grad_norm", "grad_clip"),
    "b1": ("adam_beta1", "beta1", "beta_1"),
    "b2": ("adam_beta2", "beta2", "beta_2"),
    "eps": ("adam_epsilon", "epsilon"),
    "layer_decay": ("layerwise_lr_decay", "llrd", "lr_decay", "layer_wise_lr_decay"),
    "frozen": ("freeze", "freeze_layers", "frozen_layers"),
    "accumulation": (
        *("gradient_accumulation_steps", "accumulate_grad_batches"),
        *("grad_accum", "accumulation_steps"),
    ),
    "remat": ("gradient_checkpointing", "checkpointing", "activation_checkpointing"),
    "dtype": ("fp16", "bf16", "precision", "torch_dtype", "mixed_precision", "half"),
    "log_every": ("logging_steps", "log_steps", "log_every_n_steps"),
    "eval_every": ("eval_steps", "val_check_interval", "evaluation_steps"),
    "checkpoint_every": ("save_steps", "save_checkpoints_steps", "save_every"),
    "keep": ("save_total_limit", "save_top_k"),
    "resume": ("resume_from_checkpoint", "overwrite_output_dir"),
    "seed": ("random_state", "random_seed", "data_seed"),
    "seeds": ("num_seeds",),
    "patience": ("early_stopping_patience", "early_stopping"),
    "attention": ("attn_implementation", "attention_implementation"),
    "processes": ("num_proc", "num_workers", "preprocessing_num_workers"),
    "rate": ("mlm_probability", "masked_lm_prob", "mask_prob"),
    "text": ("text_column", "text_column_name", "text_field", "sentence_column"),
    "pair": ("text_pair", "pair_column", "sentence2_key"),
    "label": ("label_column", "label_column_name", "label_field", "target"),
    "doc_stride": ("stride",),
    "vocabulary": ("kind", "vocab_type", "tokenizer_type"),
    "vocab_size": ("size", "vocabulary_size"),
}
_OURS = {other: ours for ours, others in OTHER_NAMES.items() for other in others}


@dataclasses.dataclass(frozen=True)
class Field:
    """A field of a config or of a config inside it.

    Attributes:
      path: names from the outermost config to the field.
      kind: one of `SIMPLE`.
      optional: True if it may be None.
      default: its value in the config.
      description: from the docstring of its class.
    """

    path: tuple[str, ...]
    kind: Any
    optional: bool
    default: Any
    description: str

    @property
    def dotted(self) -> str:
        """The path as errors name it: `optimizer.learning_rate`."""
        return ".".join(self.path)

    @property
    def shown(self) -> str:
        """The default as a person would type it."""
        if self.kind in SEVERAL:
            return " ".join(map(str, self.default)) or "none"
        plain = {None: "none", True: "true", False: "false", "": '""'}
        is_plain = self.default is None or isinstance(self.default, bool | str)
        return str(plain.get(self.default, self.default) if is_plain else self.default)


def leaves(config: Any, path: tuple[str, ...] = ()) -> Iterator[Field]:
    """The fields of simple types of a config and of those inside it, outer ones first.

    >>> [field.dotted for field in leaves(config.task)][:2]
    ['train', 'dev']
    """
    hints, texts = typing.get_type_hints(type(config)), descriptions(type(config))
    inside = []
    for field in dataclasses.fields(config):
        value, below = getattr(config, field.name), (*path, field.name)
        kind, optional = _kind(hints[field.name])
        if kind in SIMPLE:
            text = texts.get(field.name, "")
            yield Field(below, kind, optional, value, text)
        elif dataclasses.is_dataclass(value):
            inside.append((value, below))
    for value, below in inside:
        yield from leaves(value, below)


def flat_names(config: Any, renamed: Mapping[str, str | None]) -> dict[str, Field]:
    """The fields of a config by flat name; of two with the same name, the outer one.

    Args:
      config: a dataclass.
      renamed: another flat name by dotted path; None leaves the field out.

    >>> flat_names(config, {"task.train": None})["learning_rate"].dotted
    'optimizer.learning_rate'
    """
    fields: dict[str, Field] = {}
    for field in leaves(config):
        name = renamed.get(field.dotted, field.path[-1])
        if name is not None:
            fields.setdefault(name, field)
    return fields


def replaced(config: Any, values: Mapping[tuple[str, ...], Any]) -> Any:
    """The config with other values by path.

    >>> replaced(config, {("optimizer", "b1"): 0.8}).optimizer.b1
    0.8
    """
    inside: dict[str, dict[tuple[str, ...], Any]] = {}
    changes = {path[0]: value for path, value in values.items() if len(path) == 1}
    for (first, *rest), value in values.items():
        if rest:
            inside.setdefault(first, {})[tuple(rest)] = value
    for name, below in inside.items():
        changes[name] = replaced(getattr(config, name), below)
    return dataclasses.replace(config, **changes)


def check_names(names: Collection[str], known: Collection[str], owner: str) -> None:
    """Raises ValueError for a name that is not known, with the one that is meant.

    >>> check_names(["lr"], ["learning_rate", "seed"], "finetune")
    Traceback (most recent call last):
    ValueError: finetune has no 'lr'; its name here is learning_rate
    """
    for name in names:
        if name in known:
            continue
        if meant := our_name(name, known):
            remedy = f"its name here is {meant}"
        elif close := difflib.get_close_matches(name, known, 1):
            remedy = f"did you mean {close[0]}?"
        else:
            remedy = f"it has {', '.join(known)}"
        raise ValueError(f"{owner} has no {name!r}; {remedy}")


def our_name(name: str, known: Collection[str]) -> str | None:
    """Our name for a setting of another library; None if there is none in `known`."""
    ours = _OURS.get(name.lower())
    return ours if ours in known else None


def converted(name: str, value: Any, field: Field) -> Any:
    """A value as the type of a field. Raises ValueError where it is of another type.

    One string counts as a tuple of it, a path as a string.
    """
    if value is None and field.optional:
        return None
    if field.kind == tuple[str, ...]:
        if isinstance(value, str | os.PathLike):
            return (os.fspath(value),)
        if isinstance(value, Collection) and not isinstance(value, Mapping | set):
            return tuple(_text(name, x, "a string, or several") for x in value)
        raise _of_another_type(name, value, "a string, or several")
    if field.kind == tuple[int, ...]:
        with contextlib.suppress(TypeError):
            many = value if isinstance(value, Collection) else [value]
            return tuple(map(operator.index, many))
        raise _of_another_type(name, value, "a whole number, or several")
    if field.kind is str:
        return _text(name, value, "a string")
    if field.kind is bool:
        if isinstance(value, bool):
            return value
        raise _of_another_type(name, value, "True or False")
    convert, kind = (
        (operator.index, "a whole number") if field.kind is int else (float, "a number")
    )
    if not isinstance(value, str | bytes | bool):
        with contextlib.suppress(TypeError, ValueError):
            return convert(value)
    raise _of_another_type(name, value, kind)


def descriptions(kind: type) -> dict[str, str]:
    """The text on each attribute in the docstring of a class and of its bases."""
    texts: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        # Sections begin in the first column, their entries deeper, and go on deeper.
        for section in re.split(r"\n(?=\S)", inspect.cleandoc(base.__doc__ or "")):
            title, _, body = section.partition("\n")
            if title in ("Attributes:", "Args:"):
                for entry in re.split(r"\n(?=\S)", inspect.cleandoc(f"\n{body}")):
                    names, _, text = entry.partition(": ")
                    plain = " ".join(text.split()).rstrip(".")
                    texts |= dict.fromkeys(names.split(", "), plain)
    return texts


def renamed_in(message: str, names: Mapping[str, str], assign: str = "=") -> str:
    """A message whose fields have the names that an interface gives them.

    Args:
      message: names fields by dotted path, as in `task.max_length=128`, or with
        "config." before it, as the differences of two runs do.
      names: the name by dotted path. One without a dot counts only before a "=".
      assign: replaces that "="; with " " a flag that is set has no value.

    >>> renamed_in("task.seed=-1; remat=true", {"task.seed": "seed", "remat": "remat"})
    'seed=-1; remat=True'
    >>> renamed_in("config.batch_size: was 8", {"batch_size": "--batch-size"})
    '--batch-size: was 8'
    """
    longest_first = "|".join(sorted(map(re.escape, names), key=len, reverse=True))

    def renamed(match: re.Match[str]) -> str:
        prefix, path, sign, value = match.groups()
        if not prefix and not sign and "." not in path:
            return match[0]
        if value and assign == " ":
            return names[path]
        if value:
            value = value if names[path].startswith("--") else "True"
        return names[path] + (assign if sign else "") + (value or "")

    fields = rf"(?<![\w.-])(config\.)?({longest_first})(?:(=)(true\b)?|(?!\w))"
    return re.sub(fields, renamed, message)


@contextlib.contextmanager
def errors_renamed(names: Mapping[str, str], assign: str = "=") -> Iterator[None]:
    """Gives the fields in errors the names of an interface; see `renamed_in`."""
    try:
        yield
    except (ValueError, OSError, MemoryError) as error:
        if len(error.args) == 1:
            error.args = (renamed_in(str(error.args[0]), names, assign),)
        raise


def _kind(hint: Any) -> tuple[Any, bool]:
    """The type of an annotation without None, and whether it had it."""
    if isinstance(hint, types.UnionType):
        kinds = [x for x in typing.get_args(hint) if x is not type(None)]
        return kinds[0] if len(kinds) == 1 else hint, True
    return hint, False


def _text(name: str, value: Any, kind: str) -> str:
    if not isinstance(value, str | os.PathLike):
        raise _of_another_type(name, value, kind)
    return os.fspath(value)


def _of_another_type(name: str, value: Any, kind: str) -> ValueError:
    shown = repr(value)
    shown = shown if len(shown) <= 60 else f"{shown[:60]}…"
    return ValueError(f"{name}={shown} is a {type(value).__name__}; it must be {kind}")
