"""Weights of allenai/bilm-tf and AllenNLP: options.json with an HDF5 file."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from examples.elmo.model import ElmoConfig
from examples.elmo.words import CHARACTERS


def read(options: str | Path, weights: str | Path) -> tuple[ElmoConfig, dict[str, Any]]:
    """The config and the parameters of `BiLstm` from published files.

    Raises ValueError for files of another kind of network, and without h5py.
    """
    try:
        import h5py
    except ImportError:
        raise ValueError(f"{weights} needs h5py to be read; pip install h5py") from None
    try:
        config = read_options(json.loads(Path(options).read_text()))
        with h5py.File(weights) as file:
            return config, parameters(config, file)
    except (OSError, KeyError, json.JSONDecodeError) as error:
        raise ValueError(
            f"{options} and {weights} are no weights of bilm-tf ({error}); give its "
            "options.json and the HDF5 file beside it"
        ) from error


def read_options(options: Mapping[str, Any]) -> ElmoConfig:
    """The config that options.json describes."""
    lstm, characters = options["lstm"], options["char_cnn"]
    widths, filters = zip(*characters["filters"], strict=True)
    if widths != tuple(range(1, len(widths) + 1)) or characters["activation"] != "relu":
        raise ValueError(
            f"char_cnn has the filters {characters['filters']} and the activation "
            f"{characters['activation']}; this reads widths of 1, 2, … with relu"
        )
    return ElmoConfig(
        hidden_size=lstm["projection_dim"],
        cell_size=lstm["dim"],
        num_hidden_layers=lstm["n_layers"],
        filters=filters,
        character_size=characters["embedding"]["dim"],
        max_characters=characters["max_characters_per_token"],
        num_highways=characters["n_highway"],
        cell_clip=lstm["cell_clip"],
        projection_clip=lstm["proj_clip"],
        skip_connections=lstm["use_skip_connections"],
    )


def parameters(config: ElmoConfig, file: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of `BiLstm` under the names that they have there."""

    def array(name):
        return np.asarray(file[name], np.float32)

    characters = {"embedding": array("char_embed")[:CHARACTERS]}
    for i in range(len(config.filters)):
        characters[f"convolution_{i + 1}"] = {
            "kernel": array(f"CNN/W_cnn_{i}")[0],
            "bias": array(f"CNN/b_cnn_{i}"),
        }
    for i in range(config.num_highways):
        for part in ("carry", "transform"):
            characters[f"highway_{i}_{part}"] = {
                "kernel": array(f"CNN_high_{i}/W_{part}"),
                "bias": array(f"CNN_high_{i}/b_{part}"),
            }
    characters["projection"] = {
        "kernel": array("CNN_proj/W_proj"),
        "bias": array("CNN_proj/b_proj"),
    }
    params: dict[str, Any] = {"characters": characters}
    for direction, name in enumerate(("forward", "backward")):
        for i in range(config.num_hidden_layers):
            cell = f"RNN_{direction}/RNN/MultiRNNCell/Cell{i}/LSTMCell"
            params[f"{name}_{i}"] = {
                "kernel": array(f"{cell}/W_0"),
                "bias": array(f"{cell}/B"),
                "projection": array(f"{cell}/W_P_0"),
            }
    return params
