"""Cross-encoders of sentence-transformers: classifiers that score pairs of texts.

Their directories are those of transformers, with one more setting: the activation that
makes a score of a logit.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bert_jax.models.pooling import ACTIVATIONS
from bert_jax.pretrained import modules
from bert_jax.pretrained.dense import class_path

# The field of config.json with the activation, and that of versions before 4; those
# from 6 on write it to config_sentence_transformers.json, and read all three.
FIELD = "sentence_transformers"
OLDER_FIELD = "sbert_ce_default_activation_function"

# The activation of models with one score that declare none.
USUAL = "Sigmoid"


def is_cross_encoder(directory: Path) -> bool:
    """True for a directory that `CrossEncoder.save` wrote."""
    return modules.settings(directory).get("model_type") == "CrossEncoder"


def read(directory: Path, published: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a config.json, with its activation as `declared` has it.

    Raises:
      ValueError: for an unknown activation, and for modules and prompts that are not
        supported.
    """
    fields = dict(published)
    older = fields.pop(OLDER_FIELD, None)
    path = (fields.get(FIELD) or {}).get("activation_fn", older)
    if is_cross_encoder(directory):
        path = modules.settings(directory).get("activation_fn", path)
        kinds = [module.kind for module in modules.read(directory)]
        if kinds != ["Transformer"]:
            raise ValueError(
                f"{directory}/modules.json has {', '.join(kinds)}; of a CrossEncoder "
                "only Transformer is supported"
            )
        if prompt := modules.read_prompts(directory).default:
            raise ValueError(
                f"{directory}/config_sentence_transformers.json has the default prompt "
                f"{prompt!r:.60}; of a CrossEncoder none is supported"
            )
    if path is None:
        return fields
    name = str(path).rpartition(".")[2]
    if not str(path).startswith("torch.nn.") or name not in ACTIVATIONS:
        raise ValueError(
            f"{directory} has activation_fn={path!r:.60}, which is not supported; only "
            f"{', '.join(ACTIVATIONS)} of torch.nn are"
        )
    return fields | declared(name)


def declared(activation: str) -> dict[str, Any]:
    """The field of config.json for an activation, a name in `ACTIVATIONS`.

    >>> declared("Identity")
    {'sentence_transformers': {'activation_fn': 'torch.nn.modules.linear.Identity'}}
    """
    return {FIELD: {"activation_fn": class_path(activation)}}


def activation(extra: Mapping[str, Any]) -> str | None:
    """The activation that the fields of a config.json declare; None if there is none.

    >>> activation(declared("Sigmoid")), activation({})
    ('Sigmoid', None)
    """
    path = (extra.get(FIELD) or {}).get("activation_fn")
    return path and str(path).rpartition(".")[2]
