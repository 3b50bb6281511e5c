"""The settings of a sentence-transformers directory, in and out."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bert_jax.files import read_json, read_object, write_json

MODES = ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")

# What older files call the modes.
_FLAGS = {
    "cls": "pooling_mode_cls_token",
    "max": "pooling_mode_max_tokens",
    "mean": "pooling_mode_mean_tokens",
    "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens",
    "weightedmean": "pooling_mode_weightedmean_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}


@dataclasses.dataclass(frozen=True)
class Pooling:
    """How the vectors of a row's tokens become one.

    Attributes:
      modes: of `MODES`; the results of several are concatenated.
      normalize: whether the vector is scaled to length 1.
      prompt: what is put before every text.

    Raises:
      ValueError: for an unknown mode.

    >>> Pooling(("mean", "average"))
    Traceback (most recent call last):
    ValueError: pooling='average' is unknown; choose of cls, max, mean, ...
    """

    modes: tuple[str, ...] = ("mean",)
    normalize: bool = False
    prompt: str = ""

    def __post_init__(self):
        for mode in self.modes:
            if mode not in MODES:
                raise ValueError(
                    f"pooling={mode!r} is unknown; choose of {', '.join(MODES)}"
                )


def transformer_directory(directory: Path) -> Path:
    """Where the encoder lies: `modules.json` may put it into a folder."""
    for module in _modules(directory):
        if _kind(module) == "Transformer":
            return _folder(directory, module)
    return directory


def read(directory: Path) -> Pooling | None:
    """The pooling of a directory; None where it has no `modules.json`."""
    modules = _modules(directory)
    unknown = [_kind(m) for m in modules if _kind(m) not in _KNOWN]
    if unknown:
        raise ValueError(
            f"{directory}/modules.json has {', '.join(unknown)}; "
            f"only {', '.join(_KNOWN)} are supported"
        )
    if not modules:
        return None
    modes = ()
    for module in modules:
        if _kind(module) == "Pooling":
            modes = _modes(read_object(_folder(directory, module) / "config.json"))
    normalize = any(_kind(module) == "Normalize" for module in modules)
    return Pooling(modes or ("mean",), normalize, _prompt(directory))


def read_max_length(directory: Path) -> int | None:
    """The longest row in tokens that a directory asks for; None where it does not."""
    limits = (
        _json(directory / "sentence_bert_config.json").get("max_seq_length"),
        _json(directory / "tokenizer_config.json").get("model_max_length"),
    )
    # transformers writes 1e30 for "no limit".
    return min((n for n in limits if n and n < 1e6), default=None)


def write(
    directory: Path, pooling: Pooling, max_length: int | None, hidden_size: int
) -> None:
    """Writes what sentence-transformers reads beside the model."""
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
    said = {flag: mode in pooling.modes for mode, flag in _FLAGS.items()}
    if _modes(said) != pooling.modes:  # flags have an order of their own
        said = {"pooling_mode": list(pooling.modes)}
    prompts = {
        "prompts": {"default": pooling.prompt} if pooling.prompt else {},
        "default_prompt_name": "default" if pooling.prompt else None,
    }
    files = {
        "modules.json": modules,
        "1_Pooling/config.json": {"word_embedding_dimension": hidden_size, **said},
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
        raise ValueError(f"{path} is no list of modules; fetch it again")
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
        return tuple(mode for mode, flag in _FLAGS.items() if config.get(flag))
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
