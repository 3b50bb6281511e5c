"""Files that directories of sentence-transformers have beside the model.

`modules.json` lists the parts that a text goes through, and
`config_sentence_transformers.json` has its prompts.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bert_jax.files import make_directory, read_json, read_object, write_json

# Kinds of modules that are an encoder, some with a masked LM head.
TRANSFORMERS = ("Transformer", "MLMTransformer")

# The name of a prompt that has no other.
UNNAMED = "default"


class Module(NamedTuple):
    """An entry of `modules.json`: its class, without the package, and its folder."""

    kind: str
    folder: Path


class Prompts(NamedTuple):
    """The prompts of a directory.

    Attributes:
      default: text to put before every text.
      named: (name, text) of the other prompts.
      similarity: the measure of two vectors, by name.
    """

    default: str = ""
    named: tuple[tuple[str, str], ...] = ()
    similarity: str | None = None


def read(directory: Path) -> list[Module]:
    """The modules of a directory in their order; [] without a `modules.json`."""
    path = directory / "modules.json"
    entries = read_json(path) if path.exists() else []
    if not isinstance(entries, list) or not all(map(_is_module, entries)):
        raise ValueError(f"{path} is not a list of modules; fetch it again")
    return [Module(_kind(entry), _folder(directory, entry)) for entry in entries]


def transformer_directory(directory: Path) -> Path:
    """The directory of the encoder: `modules.json` can put it into a folder."""
    for module in read(directory):
        if module.kind in TRANSFORMERS:
            return module.folder
    return directory


def settings(directory: Path) -> Mapping[str, Any]:
    """The content of `config_sentence_transformers.json`; {} without it."""
    return _json(directory / "config_sentence_transformers.json")


def read_prompts(directory: Path) -> Prompts:
    """The prompts of a directory, checked."""
    content = settings(directory)
    prompts = content.get("prompts") or {}
    if not isinstance(prompts, dict):
        raise ValueError(
            f"{directory}/config_sentence_transformers.json has prompts="
            f"{prompts!r:.60}, which give no text to a name; correct it"
        )
    name = content.get("default_prompt_name")
    if name is not None and name not in prompts:
        raise ValueError(
            f"{directory}/config_sentence_transformers.json has no prompt {name!r}, "
            "its default_prompt_name; correct it"
        )
    default = "" if name is None else prompts[name]
    named = tuple(x for x in prompts.items() if x != (UNNAMED, default))
    return Prompts(default, named, content.get("similarity_fn_name"))


def read_max_length(directory: Path) -> int | None:
    """The most tokens in a row that a directory sets; None if it sets no limit."""
    limits = (
        _json(directory / "sentence_bert_config.json").get("max_seq_length"),
        _json(directory / "tokenizer_config.json").get("model_max_length"),
    )
    # transformers writes 1e30 for "no limit".
    return min((n for n in limits if n and n < 1e6), default=None)


def write(
    directory: Path,
    classes: Sequence[str],
    prompts: Prompts,
    max_length: int | None,
    *,
    model: Mapping[str, Any] | None = None,
    transformer: Mapping[str, Any] | None = None,
) -> list[Path]:
    """Writes the files of this page, and returns the folder of each module.

    Args:
      directory: of the model.
      classes: of the modules in their order, with their package.
      prompts: of the model.
      max_length: the most tokens in a row.
      model: more fields of `config_sentence_transformers.json`.
      transformer: more fields of `sentence_bert_config.json`.
    """
    names = [path.rpartition(".")[2] for path in classes]
    paths = [f"{i}_{name}" if i else "" for i, name in enumerate(names)]
    texts, default = dict(prompts.named), None
    if prompts.default:
        equal = [name for name, text in texts.items() if text == prompts.default]
        default = equal[0] if equal else UNNAMED
        texts[default] = prompts.default
    files: dict[str, Any] = {
        "modules.json": [
            {"idx": i, "name": str(i), "path": path, "type": name}
            for i, (path, name) in enumerate(zip(paths, classes, strict=True))
        ],
        "sentence_bert_config.json": {
            "max_seq_length": max_length,
            "do_lower_case": False,
            **(transformer or {}),
        },
        "config_sentence_transformers.json": {
            "prompts": texts,
            "default_prompt_name": default,
            "similarity_fn_name": prompts.similarity,
            **(model or {}),
        },
    }
    for name, value in files.items():
        write_json(directory / name, value)
    folders = [directory / path for path in paths]
    for folder in folders:
        make_directory(folder)
    return folders


def _is_module(entry: Any) -> bool:
    return isinstance(entry, dict) and {"type", "path"} <= entry.keys()


def _kind(entry: Mapping[str, Any]) -> str:
    return str(entry["type"]).rpartition(".")[2]


def _folder(directory: Path, entry: Mapping[str, Any]) -> Path:
    path = Path(entry["path"])
    if path.is_absolute() or ".." in path.parts:
        raise ValueError(
            f"{directory}/modules.json has path={str(path)!r:.60}, which leads out of "
            "the directory; correct it"
        )
    return directory / path


def _json(path: Path) -> Mapping[str, Any]:
    return read_object(path) if path.exists() else {}
