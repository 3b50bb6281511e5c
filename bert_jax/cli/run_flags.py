"""Flags for the fields of a run, from the dataclasses of its config."""

from argparse import SUPPRESS, ArgumentParser, BooleanOptionalAction, Namespace
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, get_args, get_origin

if TYPE_CHECKING:
    from bert_jax.training.fields import Field

METAVARS = {int: "N", float: "X"}
# Defaults that follow from other flags or from the model.
FOLLOWING = {
    "num_steps": "follows from --epochs",
    "warmup_steps": "a tenth of the steps",
    "eval_every": "an epoch",
    "checkpoint_every": "an epoch",
}


def add(parser: ArgumentParser, fields: Mapping[str, "Field"], task: str) -> None:
    """Adds a flag for each field; `task` is the title of the task's own."""
    from bert_jax.api import USUAL, flag

    titles = {"": "options", "run": "the run", "optimizer": "the optimizer"}
    groups = {title: list[str]() for title in [*titles.values(), task]}
    for name in fields:
        place = "" if name in USUAL else _place(fields[name])
        groups[titles.get(place, task)].append(name)
    for title, names in groups.items():
        group = parser.add_argument_group(title) if title != "options" else parser
        for name in names:
            action = _action(fields[name], FOLLOWING.get(name))
            group.add_argument(flag(name), **action)


def add_plain(parser: ArgumentParser, fields: Mapping[str, "Field"]) -> None:
    """Adds a flag for each field, in no groups."""
    from bert_jax.api import flag

    for name, field in fields.items():
        parser.add_argument(flag(name), **_action(field))


def settings(args: Namespace, besides: Collection[str]) -> dict[str, Any]:
    """The values of flags that were typed, by the names of their fields."""
    return {
        name: value
        for name, value in vars(args).items()
        if name not in besides and value is not None
    }


def _place(field: "Field") -> str:
    return field.path[0] if len(field.path) > 1 else "run"


def _action(field: "Field", default: str | None = None) -> dict[str, Any]:
    """The keywords of `add_argument` for a field."""
    text = f"{field.description} (default: {default or field.shown})"
    text = text.replace("%", "%%")
    action: dict[str, Any] = {"default": SUPPRESS, "help": text}
    if field.kind is bool:
        return action | {"action": BooleanOptionalAction}
    kind = field.kind
    if get_origin(kind) is tuple:
        kind, action["nargs"] = get_args(kind)[0], "+"
    return action | {"type": kind, "metavar": METAVARS.get(kind, "TEXT")}
