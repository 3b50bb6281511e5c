"""Pooling: one vector of the tokens of a text, as sentence-transformers does it.

A new pooling is one entry of `MODES`.
"""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bert_jax.files import read_json, read_object, write_json


@dataclasses.dataclass(frozen=True)
class Pooling:
    """A way to make one vector of the vectors of a text's tokens.

    Attributes:
      modes: names in `MODES`; the vectors of several are concatenated.
      normalize: True scales the result to length 1.
      prompt: text to put before every text.

    Raises:
      ValueError: for an unknown mode.

    >>> Pooling(("mean", "average"))
    Traceback (most recent call last):
    ValueError: pooling='average' is unknown; choose one of cls, max, mean, ...
    """

    modes: tuple[str, ...] = ("mean",)
    normalize: bool = False
    prompt: str = ""

    def __post_init__(self) -> None:
        for mode in self.modes:
            if mode not in MODES:
                raise ValueError(
                    f"pooling={mode!r} is unknown; choose one of {', '.join(MODES)}"
                )

    def __call__(self, x: jax.Array, mask: jax.Array) -> jax.Array:
        """Token vectors `[B, L, D]` and mask `[B, L]` -> `[B, len(modes) * D]`.

        Padding, 0 in the mask, has no effect.

        >>> x = jnp.array([[[1.0, 2.0], [3.0, 4.0], [9.0, 9.0]]])
        >>> Pooling(("mean", "cls"))(x, jnp.array([[1, 1, 0]]))
        Array([[2., 3., 1., 2.]], dtype=float32)
        """
        weights = (mask > 0).astype(jnp.float32)
        vectors = [MODES[mode].function(x, weights) for mode in self.modes]
        pooled = jnp.concatenate(vectors, axis=-1)
        return _normalized(pooled) if self.normalize else pooled


class Mode(NamedTuple):
    """One way to pool.

    Attributes:
      function: token vectors `[B, L, D]` and weights `[B, L]`, 1 for tokens and 0 for
        padding, -> `[B, D]`.
      flag: its field in the older settings of sentence-transformers, if there is one.
    """

    function: Callable[[jax.Array, jax.Array], jax.Array]
    flag: str | None = None


def _normalized(x: jax.Array) -> jax.Array:
    """`[..., D]` scaled to length 1."""
    length = jnp.sqrt((x * x).sum(-1, keepdims=True))
    return x / jnp.maximum(length, 1e-12)


def _cls(x: jax.Array, weights: jax.Array) -> jax.Array:
    return x[:, 0]


def _max(x: jax.Array, weights: jax.Array) -> jax.Array:
    return jnp.where(weights[..., None] > 0, x, -jnp.inf).max(1)


def _sum(x: jax.Array, weights: jax.Array) -> jax.Array:
    return jnp.einsum("BLD,BL->BD", x, weights)


def _mean(x: jax.Array, weights: jax.Array) -> jax.Array:
    return _sum(x, weights) / jnp.maximum(weights.sum(1), 1e-9)[:, None]


def _mean_sqrt(x: jax.Array, weights: jax.Array) -> jax.Array:
    return _sum(x, weights) / jnp.sqrt(jnp.maximum(weights.sum(1), 1e-9))[:, None]


def _weighted_mean(x: jax.Array, weights: jax.Array) -> jax.Array:
    return _mean(x, weights * weights.cumsum(1))


def _last(x: jax.Array, weights: jax.Array) -> jax.Array:
    last = weights.shape[1] - 1 - weights[:, ::-1].argmax(1)
    return jnp.take_along_axis(x, last[:, None, None], axis=1)[:, 0]


MODES = {
    "cls": Mode(_cls, "pooling_mode_cls_token"),
    "max": Mode(_max, "pooling_mode_max_tokens"),
    "mean": Mode(_mean, "pooling_mode_mean_tokens"),
    "mean_sqrt_len_tokens": Mode(_mean_sqrt, "pooling_mode_mean_sqrt_len_tokens"),
    "weightedmean": Mode(_weighted_mean, "pooling_mode_weightedmean_tokens"),
    "lasttoken": Mode(_last, "pooling_mode_lasttoken"),
}


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
    modes: tuple[str, ...] = ()
    for module in modules:
        if _kind(module) == "Pooling":
            modes = _modes(read_object(_folder(directory, module) / "config.json"))
    normalize = any(_kind(module) == "Normalize" for module in modules)
    return Pooling(modes or ("mean",), normalize, _prompt(directory))


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
    kinds = ("Transformer", "Pooling", "Normalize")[: 3 if pooling.normalize else 2]
    paths = ("", "1_Pooling", "2_Normalize")
    modules = [
        {
            "idx": i,
            "name": str(i),
            "path": paths[i],
            "type": f"sentence_transformers.models.{kind}",
        }
        for i, kind in enumerate(kinds)
    ]
    settings: dict[str, Any] = {
        mode.flag: name in pooling.modes for name, mode in MODES.items() if mode.flag
    }
    if _modes(settings) != pooling.modes:  # an order, or a mode, that flags lack
        settings = {"pooling_mode": list(pooling.modes)}
    prompts = {
        "prompts": {"default": pooling.prompt} if pooling.prompt else {},
        "default_prompt_name": "default" if pooling.prompt else None,
    }
    files = {
        "modules.json": modules,
        "1_Pooling/config.json": {"word_embedding_dimension": hidden_size, **settings},
        "sentence_bert_config.json": {
            "max_seq_length": max_length,
            "do_lower_case": False,
        },
        "config_sentence_transformers.json": prompts,
    }
    (directory / "1_Pooling").mkdir(exist_ok=True)
    for name, value in files.items():
        write_json(directory / name, value)


_KNOWN = ("Transformer", "Pooling", "Normalize")


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


def _prompt(directory: Path) -> str:
    config = _json(directory / "config_sentence_transformers.json")
    name, prompts = config.get("default_prompt_name"), config.get("prompts", {})
    if name is None:
        return ""
    if not isinstance(prompts, dict) or name not in prompts:
        raise ValueError(
            f"{directory}/config_sentence_transformers.json has no prompt {name!r}, "
            "its default_prompt_name; correct it"
        )
    return prompts[name]


def _json(path: Path) -> Mapping[str, Any]:
    return read_object(path) if path.exists() else {}
