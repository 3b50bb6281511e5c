"""The settings of late interaction, as published directories have them.

sentence-transformers writes a `MultiVectorEncoder`; directories of PyLate and of
colbert-ir (Stanford's ColBERT) are read, too. `models.late_interaction` computes.
"""

import dataclasses
import string
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.files import read_object, write_json
from bert_jax.pretrained import dense, modules
from bert_jax.pretrained.dense import Dense

# The architecture in the config.json of Stanford's code, and its projection.
STANFORD, PROJECTION = "HF_ColBERT", "linear.weight"
# Its settings, and the markers that it uses without them.
METADATA, MARKERS = "artifact.metadata", ("[unused0]", "[unused1]")

# Values of `model_type` in config_sentence_transformers.json.
PYLATE, MULTI_VECTOR = "ColBERT", "MultiVectorEncoder"
# Fields there that only PyLate writes.
PYLATE_FIELDS = (
    *("query_prefix", "document_prefix", "query_length", "document_length"),
    *("do_query_expansion", "attend_to_expansion_tokens", "skiplist_words"),
)

# In the order in which they run.
_KNOWN = ("Transformer", "Dense", "MultiVectorMask", "Normalize")

SIMILARITIES = ("maxsim", "meanmaxsim")
QUERY_LENGTH = 32


@dataclasses.dataclass(frozen=True, eq=False)
class LateInteraction:
    """A way to make a vector for each token, of queries and of documents.

    Attributes:
      dense: layers that the vectors of tokens go through.
      normalize: True scales the result to length 1.
      query_prompt, document_prompt: text before every query and document, or a marker:
        a piece of the vocabulary such as `[unused0]`.
      fill_to: tokens that a query is filled up to with mask tokens; 0 for none.
      query_length: the most tokens of a query; None: as many as a document has.
      attends: True if other tokens attend to the mask tokens that fill a query.
      filler: the token that fills a query; None: the mask token.
      skipped: pieces whose vectors documents leave out.
      similarity: "maxsim", or "meanmaxsim", which is divided by the tokens of a query.

    Raises:
      ValueError: for an unknown similarity, or queries shorter than they are filled to.

    >>> LateInteraction(fill_to=32, query_length=16)
    Traceback (most recent call last):
    ValueError: query_length=16 is below fill_to=32; make them equal, or leave one out
    """

    dense: tuple[Dense, ...] = ()
    normalize: bool = True
    query_prompt: str = ""
    document_prompt: str = ""
    fill_to: int = QUERY_LENGTH
    query_length: int | None = QUERY_LENGTH
    attends: bool = False
    filler: str | None = None
    skipped: tuple[str, ...] = ()
    similarity: str = "maxsim"

    def __post_init__(self) -> None:
        if self.similarity not in SIMILARITIES:
            raise ValueError(
                f"similarity={self.similarity!r} is unknown; choose one of "
                f"{', '.join(SIMILARITIES)}"
            )
        if self.query_length is not None and self.query_length < self.fill_to:
            raise ValueError(
                f"query_length={self.query_length} is below fill_to={self.fill_to}; "
                "make them equal, or leave one out"
            )

    def width(self, hidden_size: int) -> int:
        """Numbers in the vector of a token."""
        return self.dense[-1].kernel.shape[1] if self.dense else hidden_size

    def describe(self) -> str:
        """The settings in a few words."""
        layers = [f"dense {layer.kernel.shape[1]}" for layer in self.dense]
        filled = [f"queries of {self.fill_to} tokens"] * bool(self.fill_to)
        return ", ".join(["late interaction", *layers, *filled])


def is_stanford(published: Mapping[str, Any]) -> bool:
    """True for the config.json of Stanford's code."""
    return STANFORD in (published.get("architectures") or ())


def read_stanford(directory: Path, tensors: dict[str, np.ndarray]) -> LateInteraction:
    """The settings of a directory of Stanford's code; takes its tensor off `tensors`.

    Without its metadata, they are the defaults of that code.
    """
    file = directory / METADATA
    content = read_object(file) if file.is_file() else {}
    names = [k for k in tensors if k.endswith(PROJECTION)]
    if not names:
        raise ValueError(f"{directory} has no tensor {PROJECTION}; fetch it again")
    kernel = np.ascontiguousarray(tensors.pop(names[0]).T, np.float32)
    query, document = MARKERS
    length = content.get("query_maxlen") or QUERY_LENGTH
    return LateInteraction(
        dense=(Dense(kernel, np.zeros(kernel.shape[1], np.float32), "Identity"),),
        query_prompt=f"{content.get('query_token_id') or query} ",
        document_prompt=f"{content.get('doc_token_id') or document} ",
        fill_to=length,
        query_length=length,
        attends=bool(content.get("attend_to_mask_tokens")),
        skipped=_punctuation(content.get("mask_punctuation", True)),
    )


def read(directory: Path) -> LateInteraction | None:
    """The settings of a directory; None if its modules make no vectors of tokens."""
    parts, settings = modules.read(directory), modules.settings(directory)
    kinds = [part.kind for part in parts]
    is_old = settings.get("model_type") == PYLATE
    is_old |= settings.get("model_type") is None and bool(
        settings.keys() & {*PYLATE_FIELDS}
    )
    if not (is_old or "MultiVectorMask" in kinds):
        return None
    unknown = [kind for kind in kinds if kind not in _KNOWN]
    if unknown or kinds != sorted(kinds, key=_KNOWN.index):
        raise ValueError(
            f"{directory}/modules.json has {', '.join(kinds)}; of late interaction "
            f"only the order {', '.join(_KNOWN)} is supported"
        )
    layers = [part.folder for part in parts if part.kind == "Dense"]
    fields: dict[str, Any] = {
        "dense": tuple(dense.read(folder, dense.TOKENS) for folder in layers),
        "normalize": is_old or "Normalize" in kinds,
    }
    if is_old:
        return LateInteraction(**fields, **_old_fields(settings))
    inner = modules.transformer_directory(directory) / "sentence_bert_config.json"
    transformer = read_object(inner) if inner.is_file() else {}
    mask = next(part.folder for part in parts if part.kind == "MultiVectorMask")
    prompts = dict(modules.read_prompts(directory).named)
    return LateInteraction(
        **fields,
        query_prompt=prompts.get("query") or "",
        document_prompt=prompts.get("document") or "",
        **_filling(transformer),
        skipped=_skipped(mask / "config.json"),
        similarity=settings.get("similarity_fn_name") or "maxsim",
    )


def read_max_length(directory: Path) -> int | None:
    """The most tokens of a document, where a directory of late interaction sets it."""
    if (directory / METADATA).is_file():
        return read_object(directory / METADATA).get("doc_maxlen")
    if "document_length" in modules.settings(directory):
        return modules.settings(directory)["document_length"]
    file = modules.transformer_directory(directory) / "sentence_bert_config.json"
    return read_object(file).get("document_length") if file.is_file() else None


def write(directory: Path, late: LateInteraction, max_length: int | None) -> None:
    """Writes the files that sentence-transformers reads beside the model."""
    base = "sentence_transformers.base.modules"
    mask = "sentence_transformers.multi_vector_encoder.modules.multi_vector_mask"
    expansion = None
    if late.fill_to:
        is_fixed = late.query_length == late.fill_to
        expansion = {
            "strategy": "fixed" if is_fixed else "min",
            "attend": late.attends,
            "token": late.filler,
            "length": late.fill_to,
        }
    prompts = ("query", late.query_prompt), ("document", late.document_prompt)
    folders = modules.write(
        directory,
        [
            f"{base}.transformer.Transformer",
            *[f"{base}.dense.Dense"] * len(late.dense),
            f"{mask}.MultiVectorMask",
            *[f"{base}.normalize.Normalize"] * late.normalize,
        ],
        modules.Prompts("", prompts, late.similarity),
        max_length,
        model={"model_type": MULTI_VECTOR},
        transformer={
            "transformer_task": "feature-extraction",
            "query_length": late.query_length,
            "document_length": max_length,
            "query_expansion": expansion,
        },
    )
    for folder, layer in zip(folders[1:], late.dense, strict=False):
        dense.write(folder, layer, dense.TOKENS)
    skipped = {
        "skiplist_words": list(late.skipped),
        "skiplist_tasks": ["document"],
        "keep_only_token_ids": None,
    }
    write_json(folders[1 + len(late.dense)] / "config.json", skipped)
    names = {f"module_{x}_name": dense.TOKENS for x in ("input", "output")}
    if late.normalize:
        write_json(folders[-1] / "config.json", names)


def _old_fields(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that PyLate has in config_sentence_transformers.json."""
    prompts = settings.get("prompts") or {}
    texts = {}
    for role in ("query", "document"):
        prefix = settings.get(f"{role}_prefix") or ""
        prompt = (prompts.get(role) or "").removeprefix(prefix)
        texts[f"{role}_prompt"] = prefix + prompt
    length = settings.get("query_length") or QUERY_LENGTH
    fills = settings.get("do_query_expansion") is not False
    words = settings.get("skiplist_words")
    return {
        **texts,
        "fill_to": length if fills else 0,
        "query_length": length,
        "attends": bool(settings.get("attend_to_expansion_tokens")),
        "skipped": _punctuation(True) if words is None else tuple(words),
    }


def _filling(transformer: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of queries, from the settings of the module `Transformer`."""
    expansion = transformer.get("query_expansion")
    length = transformer.get("query_length")
    if not expansion:
        return {"fill_to": 0, "query_length": length}
    fill_to = expansion["length"]
    if expansion.get("strategy") == "fixed":
        length = fill_to
    return {
        "fill_to": fill_to,
        "query_length": length,
        "attends": bool(expansion.get("attend")),
        "filler": expansion.get("token"),
    }


def _skipped(file: Path) -> tuple[str, ...]:
    """The pieces that documents leave out."""
    config = read_object(file)
    only = {"skiplist_tasks": ["document"], "keep_only_token_ids": None}
    for field, value in only.items():
        if config.get(field, value) != value:
            raise ValueError(
                f"{file} has {field}={config[field]!r:.60}, which is not supported; "
                f"only {value!r} is"
            )
    return tuple(config.get("skiplist_words") or ())


def _punctuation(skips: bool) -> tuple[str, ...]:
    return tuple(string.punctuation) if skips else ()
