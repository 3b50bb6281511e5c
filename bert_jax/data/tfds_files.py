"""Labelled datasets of TFDS, written out as JSONL files."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax import files
from bert_jax.data import optional

PREFIX = "tfds:"


def local_file(path: str) -> str:
    """`tfds:NAME:SPLIT` as the file its rows were written to; other paths as they are.

    NAME and SPLIT are as `tfds.load` takes them (`tfds:glue/sst2:train`). The dataset
    is downloaded where it is not yet prepared, and the file lies beside it. A class is
    written as its number, a sequence of classes as their names.

    Raises:
      ValueError: where there is no such dataset or split, or it cannot be fetched.
    """
    if not path.startswith(PREFIX):
        return path
    name, _, split = path.removeprefix(PREFIX).rpartition(":")
    tfds = optional.tensorflow_datasets()
    try:
        builder = tfds.builder(name)
        if not builder.is_prepared():
            print(f"{path} is not on this machine: TFDS fetches it")  # or tries long
        builder.download_and_prepare()
        source = builder.as_data_source(split=split)
    except Exception as error:  # of the network, the registry and the dataset
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise ValueError(
            f"{path} cannot be read ({reason[0][:200]}); write tfds:NAME:SPLIT, as in "
            "tfds:glue/sst2:train, or give a file"
        ) from None
    file = Path(builder.data_dir) / f"{split}.jsonl"
    if not file.exists():
        with files.new_file(file) as out:
            for row in source:
                out.write(json.dumps(dict(_plain(row, builder.info.features))) + "\n")
    return str(file)


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
