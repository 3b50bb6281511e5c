"""Pooling: one vector of the tokens of a text, as sentence-transformers does it.

`models.pooling` has the functions.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from bert_jax.files import make_directory, read_json, read_object, write_json
from bert_jax.models.pooling import MODES, pool
from bert_jax.pretrained import dense
from bert_jax.pretrained.dense import Dense


@struct.dataclass
class Pooling:
    """A way to make one vector of the vectors of a text's tokens.

    Attributes:
      modes: names in `MODES`; the vectors of several are concatenated.
      normalize: True scales the result to length 1.
      prompt: text to put before every text.
      prompts: (name, text) of the prompts that the directory names, and `similarity`,
        its measure of two vectors; they are saved again.
      dense: layers that the vectors go through before they are scaled.

    A tree of JAX, whose arrays are those of the layers.

    Raises:
      ValueError: for an unknown mode.

    >>> Pooling(("mean", "average"))
    Traceback (most recent call last):
    ValueError: pooling='average' is unknown; choose one of cls, max, mean, ...
    """

    modes: tuple[str, ...] = struct.field(pytree_node=False, default=("mean",))
    normalize: bool = struct.field(pytree_node=False, default=False)
    prompt: str = struct.field(pytree_node=False, default="")
    prompts: tuple[tuple[str, str], ...] = struct.field(pytree_node=False, default=())
    similarity: str | None = struct.field(pytree_node=False, default=None)
    dense: tuple[Dense, ...] = ()

    def __post_init__(self) -> None:
        for mode in self.modes:
            if mode not in MODES:
                raise ValueError(
                    f"pooling={mode!r} is unknown; choose one of {', '.join(MODES)}"
                )

    def __call__(self, x: jax.Array, mask: jax.Array) -> jax.Array:
        """Token vectors `[B, L, D]` and mask `[B, L]` -> `[B, width(D)]`.

        Padding, 0 in the mask, has no effect.

        >>> x = jnp.array([[[1.0, 2.0], [3.0, 4.0], [9.0, 9.0]]])
        >>> Pooling(("mean", "cls"))(x, jnp.array([[1, 1, 0]]))
        Array([[2., 3., 1., 2.]], dtype=float32)
        """
        pooled = pool(x, mask, self.modes)
        for layer in self.dense:
            pooled = layer(pooled)
        return _normalized(pooled) if self.normalize else pooled

    def width(self, features: int) -> int:
        """Numbers in a vector, from those in the vector of a token."""
        if self.dense:
            return self.dense[-1].kernel.shape[1]
        return len(self.modes) * features

    def describe(self) -> str:
        """The pooling in a few words."""
        layers = [f"dense {layer.kernel.shape[1]}" for layer in self.dense]
        scaled = ["scaled to length 1"] * self.normalize
        return ", ".join([f"{' and '.join(self.modes)} pooling", *layers, *scaled])


def _normalized(x: jax.Array) -> jax.Array:
    """`[..., D]` scaled to length 1."""
    length = jnp.sqrt((x * x).sum(-1, keepdims=True))
    return x / jnp.maximum(length, 1e-12)


def transformer_directory(directory: Path) -> Path:
    """The directory of the encoder: `modules.json` can put it into a folder."""
    for module in _modules(directory):
        if _kind(module) == "Transformer":
            return _folder(directory, module)
    return directory


def read(directory: Path) -> Pooling | None:
    """The pooling of a directory; None if it has no `modules.json`."""
    modules = _modules(directory)
    unknown = [_kind(m) for m in modules if _kind(m) not in _KNOWN]
    if unknown:
        raise ValueError(
            f"{directory}/modules.json has {', '.join(unknown)}; "
            f"only {', '.join(_KNOWN)} are supported"
        )
    if not modules:
        return None
    kinds = [_kind(module) for module in modules]
    if kinds != sorted(kinds, key=_KNOWN.index):
        raise ValueError(
            f"{directory}/modules.json has {', '.join(kinds)}; only the order "
            f"{', '.join(_KNOWN)} is supported"
        )
    folders = [(_kind(module), _folder(directory, module)) for module in modules]
    modes: tuple[str, ...] = ()
    for kind, folder in folders:
        if kind == "Pooling":
            modes = _modes(read_object(folder / "config.json"))
    settings = _json(directory / "config_sentence_transformers.json")
    prompts = settings.get("prompts") or {}
    if not isinstance(prompts, dict):
        raise ValueError(
            f"{directory}/config_sentence_transformers.json has prompts="
            f"{prompts!r:.60}, which give no text to a name; correct it"
        )
    default = settings.get("default_prompt_name")
    prompt = _default_prompt(directory, default, prompts)
    return Pooling(
        modes or ("mean",),
        "Normalize" in kinds,
        prompt,
        tuple(x for x in prompts.items() if x != (UNNAMED, prompt)),
        settings.get("similarity_fn_name"),
        tuple(dense.read(folder) for kind, folder in folders if kind == "Dense"),
    )


def read_max_length(directory: Path) -> int | None:
    """The most tokens in a row that a directory sets; None if it sets no limit."""
    limits = (
        _json(directory / "sentence_bert_config.json").get("max_seq_length"),
        _json(directory / "tokenizer_config.json").get("model_max_length"),
    )
    # transformers writes 1e30 for "no limit".
    return min((n for n in limits if n and n < 1e6), default=None)


def write(
    directory: Path, pooling: Pooling, max_length: int | None, hidden_size: int
) -> None:
    """Writes the files that sentence-transformers reads beside the model."""
    kinds = ["Transformer", "Pooling", *["Dense"] * len(pooling.dense)]
    kinds += ["Normalize"] * pooling.normalize
    modules = [
        {
            "idx": i,
            "name": str(i),
            "path": f"{i}_{kind}" if i else "",
            "type": f"sentence_transformers.models.{kind}",
        }
        for i, kind in enumerate(kinds)
    ]
    settings: dict[str, Any] = {
        mode.flag: name in pooling.modes for name, mode in MODES.items() if mode.flag
    }
    if _modes(settings) != pooling.modes:  # an order, or a mode, that flags lack
        settings = {"pooling_mode": list(pooling.modes)}
    prompts, default = dict(pooling.prompts), None
    if pooling.prompt:
        names = [name for name, text in prompts.items() if text == pooling.prompt]
        default = names[0] if names else UNNAMED
        prompts[default] = pooling.prompt
    files = {
        "modules.json": modules,
        "1_Pooling/config.json": {"word_embedding_dimension": hidden_size, **settings},
        "sentence_bert_config.json": {
            "max_seq_length": max_length,
            "do_lower_case": False,
        },
        "config_sentence_transformers.json": {
            "prompts": prompts,
            "default_prompt_name": default,
            "similarity_fn_name": pooling.similarity,
        },
    }
    make_directory(directory / "1_Pooling")
    for name, value in files.items():
        write_json(directory / name, value)
    for i, layer in enumerate(pooling.dense, 2):
        dense.write(directory / f"{i}_Dense", layer)


# The name of a prompt that has no other.
UNNAMED = "default"

# In the order in which they run.
_KNOWN = ("Transformer", "Pooling", "Dense", "Normalize")


def _modules(directory: Path) -> list[Mapping[str, Any]]:
    path = directory / "modules.json"
    modules = read_json(path) if path.exists() else []
    if not isinstance(modules, list) or not all(map(_is_module, modules)):
        raise ValueError(f"{path} is not a list of modules; fetch it again")
    return modules


def _is_module(module: Any) -> bool:
    return isinstance(module, dict) and {"type", "path"} <= module.keys()


def _folder(directory: Path, module: Mapping[str, Any]) -> Path:
    path = Path(module["path"])
    if path.is_absolute() or ".." in path.parts:
        raise ValueError(
            f"{directory}/modules.json has path={str(path)!r:.60}, which leads out of "
            "the directory; correct it"
        )
    return directory / path


def _kind(module: Mapping[str, Any]) -> str:
    return module["type"].rpartition(".")[2]


def _modes(config: Mapping[str, Any]) -> tuple[str, ...]:
    if config.get("include_prompt") is False:
        raise ValueError(
            "1_Pooling/config.json has include_prompt=false, which is not supported; "
            "set it to true"
        )
    mode = config.get("pooling_mode")
    if mode is None:
        return tuple(k for k, x in MODES.items() if x.flag and config.get(x.flag))
    return (mode,) if isinstance(mode, str) else tuple(mode)


def _default_prompt(
    directory: Path, name: str | None, prompts: Mapping[str, str]
) -> str:
    if name is None:
        return ""
    if name not in prompts:
        raise ValueError(
            f"{directory}/config_sentence_transformers.json has no prompt {name!r}, "
            "its default_prompt_name; correct it"
        )
    return prompts[name]


def _json(path: Path) -> Mapping[str, Any]:
    return read_object(path) if path.exists() else {}
