"""Laws of flat names for the fields of a run."""

import numpy as np
import pytest

from bert_jax import api
from bert_jax.training import fields
from bert_jax.training.config import TrainConfig
from bert_jax.training.fields import Field, check_names, converted, renamed_in
from bert_jax.training.optimizers import OptimizerConfig

RUNS = {task: (api.fine_tuning_run(task), api.FINE_TUNING_NAMES) for task in api.TASKS}
RUNS["pretrain"] = (api.pretraining_run(), api.PRETRAINING_NAMES)


@pytest.mark.parametrize("name", RUNS)
def test_every_field_of_a_run_is_an_argument_with_a_description(name):
    config, names = RUNS[name]
    known = api.arguments_of(config, names)
    assert {"dtype", "accumulation", "remat", "layout", "resume"} <= known.keys()
    assert {"weight_decay", "frozen", "warmup_steps", "max_length"} <= known.keys()
    own = {x.name for kind in (TrainConfig, OptimizerConfig) for x in _fields(kind)}
    assert own - {"encoder", "task", "init_from", "name"} <= known.keys()
    undescribed = [key for key, field in known.items() if not field.description]
    assert not undescribed


def _fields(kind):
    return kind.__dataclass_fields__.values()


def test_names_of_other_libraries_are_unique_and_not_ours():
    others = [x for names in fields.OTHER_NAMES.values() for x in names]
    assert len(others) == len(set(others))
    ours = {name for run in RUNS.values() for name in api.arguments_of(*run)}
    assert not ours & set(others)
    ours |= {"workdir", "model", "epochs", "paths", "processes"}
    ours |= {"vocabulary", "vocab_size"}  # of commands that make rows and vocabularies
    assert fields.OTHER_NAMES.keys() <= ours


@pytest.mark.parametrize(
    "name, message",
    [
        ("lr", "its name here is learning_rate"),
        ("per_device_train_batch_size", "its name here is batch_size"),
        ("learning_rat", "did you mean learning_rate?"),
        ("zzz", "it has learning_rate, batch_size"),
    ],
)
def test_a_name_that_does_not_exist_is_answered_with_ours(name, message):
    with pytest.raises(ValueError, match=message):
        check_names([name], ["learning_rate", "batch_size"], "finetune")


def a_field(kind, optional=False):
    return Field(("x",), kind, optional, None, "")


TEXTS = tuple[str, ...]


@pytest.mark.parametrize(
    "kind, value, expected",
    [
        (TEXTS, "encoder", ("encoder",)),
        (TEXTS, ["a", "b"], ("a", "b")),
        (float, 3, 3.0),
        (float, np.float32(0.5), 0.5),
        (int, np.int64(3), 3),
        (bool, True, True),
    ],
)
def test_values_become_those_of_their_field(kind, value, expected):
    result = converted("x", value, a_field(kind))
    assert result == expected and type(result) is type(expected)
    assert converted("x", None, a_field(kind, optional=True)) is None


@pytest.mark.parametrize(
    "kind, value, message",
    [
        (int, "32", "x='32' is a str; it must be a whole number"),
        (int, 2.5, "x=2.5 is a float; it must be a whole number"),
        (float, "1e-4", "must be a number"),
        (float, None, "x=None is a NoneType; it must be a number"),
        (bool, 1, "must be True or False"),
        (TEXTS, {"a": 1}, "a string, or several"),
        (str, ["a"], "must be a string"),
    ],
)
def test_a_value_of_another_type_is_refused(kind, value, message):
    with pytest.raises(ValueError, match=message):
        converted("x", value, a_field(kind))


def test_errors_name_fields_as_their_interface_does():
    message = "task.max_length=9 exceeds 8; lower it or set batch_size=3, batch_size"
    names = {"task.max_length": "--max-length", "batch_size": "--batch-size"}
    shell = "--max-length 9 exceeds 8; lower it or set --batch-size 3, batch_size"
    assert renamed_in(message, names, " ") == shell
    switch = "set remat=true or keep=1"
    assert renamed_in(switch, {"remat": "--remat"}, " ") == "set --remat or keep=1"
    assert renamed_in(switch, {"remat": "--config.remat"}).startswith("set --config.re")
    assert renamed_in(switch, {"remat": "remat"}) == "set remat=True or keep=1"
    with pytest.raises(ValueError, match="^--max-length 9 exceeds"):
        with fields.errors_renamed(names, " "):
            raise ValueError(message)
