"""Names on the Hugging Face Hub -> directories, from the local cache if it has them."""

import re
from pathlib import Path

import huggingface_hub

from bert_jax.pretrained import weights

# All but the weights; of these, one format is fetched.
_SETTINGS = ("*.json", "*.txt", "*.model")
_FORMATS = (("*.safetensors",), (weights.MSGPACK,))
# Of other programs' folders, some of which hold weights too.
_OTHERS = ("onnx/*", "openvino/*", "coreml/*")


def fetch(name: str) -> Path:
    """The directory of a model's files, downloaded where the cache lacks them."""
    if not re.fullmatch(r"\w[\w.-]*(/[\w.-]+)?", name):
        raise ValueError(f"there is no directory {name}; check the path")
    cached = huggingface_hub.try_to_load_from_cache(name, "config.json")
    if isinstance(cached, str) and weights.format_of(Path(cached).parent):
        return Path(cached).parent
    for patterns in _FORMATS:
        directory = _download(name, [*_SETTINGS, *patterns])
        if weights.format_of(directory):
            return directory
    raise ValueError(
        f"{name} publishes neither safetensors nor {weights.MSGPACK}, and pickles are "
        "not read; convert it with transformers' save_pretrained"
    )


def _download(name: str, patterns: list[str]) -> Path:
    try:
        return Path(
            huggingface_hub.snapshot_download(
                name, allow_patterns=patterns, ignore_patterns=list(_OTHERS)
            )
        )
    except OSError as error:  # of the network and of the Hub, all of them
        raise ValueError(
            f"{name} is no directory, is not in the cache of the Hugging Face Hub, and "
            f"cannot be fetched ({type(error).__name__}); check the name, or go online"
        ) from error
