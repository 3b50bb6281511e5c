"""Labelled datasets of TFDS, written out as JSONL files."""

import json
import re
import urllib.parse
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax import files
from bert_jax.data import optional

PREFIX = "tfds:"

# A split follows the last colon outside of the brackets of its slices.
_SPLIT = re.compile(r"(.+):([^:\[\]]+(?:\[[^\]]*\][^:\[\]]*)*)")


def local_file(path: str) -> str:
    """`tfds:NAME:SPLIT` as the file its rows were written to; other paths as they are.

    NAME and SPLIT are as `tfds.load` takes them (`tfds:glue/sst2:train[:80%]`). The
    dataset is downloaded where it is not yet prepared, and the file lies beside it. A
    class is written as its number, a sequence of classes as their names.

    Raises:
      ValueError: where there is no such dataset or split, or it cannot be fetched.
    """
    if not path.startswith(PREFIX):
        return path
    tfds = optional.tensorflow_datasets()
    try:
        name, split = _name_and_split(path)
        builder = tfds.builder(name)
        if not builder.is_prepared():
            print(f"{path} is not on this machine: TFDS fetches it")  # or tries long
        builder.download_and_prepare()
        # A split in a file's name: its brackets and slashes need another spelling.
        file = Path(builder.data_dir) / f"{urllib.parse.quote(split, safe='+')}.jsonl"
        if not file.exists():
            _write_rows(builder, split, file)
    except Exception as error:  # of the network, the registry and the dataset
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise ValueError(
            f"{path} cannot be read ({reason[0][:200]}); write tfds:NAME:SPLIT, as in "
            "tfds:glue/sst2:train, or give a file"
        ) from None
    return str(file)


def examples(builder: Any, split: str) -> Iterable[dict]:
    """The examples of a prepared dataset, in the order of its files.

    ArrayRecord, the format of this package, has no reader in tf.data; TFRecord, which
    TFDS writes by default, has no other.
    """
    tfds = optional.tensorflow_datasets()
    if builder.info.file_format.value == "array_record":
        return builder.as_data_source(split=split)
    in_order = tfds.ReadConfig(interleave_cycle_length=1)
    return tfds.as_numpy(builder.as_dataset(split=split, read_config=in_order))


def _name_and_split(path: str) -> tuple[str, str]:
    match = _SPLIT.fullmatch(path.removeprefix(PREFIX))
    if not match:
        raise ValueError("it names no split")
    return match[1], match[2]


def _write_rows(builder: Any, split: str, file: Path) -> None:
    with files.new_file(file) as out:
        for row in examples(builder, split):
            out.write(json.dumps(dict(_plain(row, builder.info.features))) + "\n")


def _plain(row: dict, features: Any) -> Iterator[tuple[str, Any]]:
    """A row's fields as JSON holds them."""
    for name, value in row.items():
        feature = features[name]
        if isinstance(value, dict):
            yield name, dict(_plain(value, getattr(feature, "feature", feature)))
        elif isinstance(value, bytes):
            yield name, value.decode()
        elif isinstance(value, list | np.ndarray) and np.ndim(value):
            names = getattr(getattr(feature, "feature", None), "int2str", None)
            yield name, [_one(x, names) for x in value]
        else:
            yield name, _one(value, None)


def _one(value, names):
    if isinstance(value, bytes):
        return value.decode()
    value = getattr(value, "item", lambda: value)()
    return names(value) if names else value
