"""A model as a function, and as StableHLO, which runs without this package."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import serialization, traverse_util

from bert_jax import files
from bert_jax.inference import jitted
from bert_jax.inference.model import Model, check_model
from bert_jax.models import (
    MultipleChoice,
    SequenceClassifier,
    SpanClassifier,
    TokenClassifier,
)
from bert_jax.pretrained import Pooling

KINDS = ("model", "encoder", "embed")
PLATFORMS = ("cpu", "cuda", "rocm", "tpu")

# The parameters of a pooling, beside those of the encoder.
POOLING = "pooling"

PROGRAM, PARAMS, SIGNATURE = "model.stablehlo", "params.npz", "signature.json"

# Heads that are trained on labels or answers.
LABELLED = (SequenceClassifier, TokenClassifier, SpanClassifier, MultipleChoice)

Params = dict[str, jax.Array]


def as_function(
    model: Model, kind: str | None = None
) -> tuple[jax.stages.Wrapped, Params]:
    """A model as a jitted function, and the parameters that it takes.

    The function is `f(params, input_ids, attention_mask, token_type_ids=None)` of
    integers `[B, L]`; its parameters are a flat dictionary by path. They are an
    argument, so that the function can be differentiated by them, sharded, or called
    with others. A compiled function cannot raise an error: the row of an id outside the
    vocabulary is NaN, and a token type that the model lacks adds nothing.

    Args:
      model: the model.
      kind: "encoder" for hidden states `[B, L, D]`, "model" for the output of
        `model(**batch)`, "embed" for that of `model.embed`, `[B, D]`. None is "embed"
        for a model with a pooling that has no head for labels or answers, and otherwise
        "model".

    Raises:
      ValueError: for another kind.

    >>> function, params = as_function(model, "encoder")
    >>> batch = model.tokenizer(["a b", "c d e"])
    >>> function(params, batch["input_ids"], batch["attention_mask"]).shape
    (2, 5, 12)
    """
    check_model("as_function", model)
    kind = kind or default_kind(model)
    if kind not in KINDS:
        raise ValueError(f"kind={kind!r} is unknown; choose one of {', '.join(KINDS)}")
    module = model.head if kind == "model" else model.encoder
    params = model.params if kind == "model" else model.params["encoder"]
    pooling = model.pooling or Pooling()
    skipped = pooling.skipped(pooling.prompt, model.tokenizer)
    if kind == "embed" and pooling.dense:
        params = {**params, POOLING: serialization.to_state_dict(pooling)}

    @jax.jit
    def function(params, input_ids, attention_mask, token_type_ids=None):
        tree = traverse_util.unflatten_dict(params, sep="/")
        batch = {
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "token_type_ids": token_type_ids,
        }
        if kind == "embed":
            layers = serialization.to_state_dict(pooling) | tree.pop(POOLING, {})
            pool = serialization.from_state_dict(pooling, layers)
            return jitted.pooled(module, (-1,), skipped, pool, tree, batch)
        return jitted.outputs(module, tree, batch)

    return function, traverse_util.flatten_dict(params, sep="/")


def default_kind(model: Model) -> str:
    """The use that a model is made for. One trained on labels keeps its pooling."""
    embeds = model.pooling and not isinstance(model.head, LABELLED)
    return "embed" if embeds else "model"


def export(model: Model, directory: str | Path, kind: str | None = None) -> Path:
    """Writes a model as StableHLO with symbolic batch and length (`jax.export`).

    The directory holds `model.stablehlo`, `params.npz` (arrays by path), the
    tokenizer's files, `signature.json` and a README.md with the code that runs it; this
    code needs only jax and NumPy, and refuses ids outside the vocabulary. It runs on
    CPUs, NVIDIA and AMD GPUs and TPUs. B and L are free, L up to the positions of the
    model.

    Args:
      model: the model.
      directory: a new or an empty directory.
      kind: see `as_function`.

    Returns:
      The directory.

    Raises:
      ValueError: for another kind, a directory that is not empty, and the name of a
        file, such as "x.onnx".

    >>> sorted(file.name for file in export(model, "exported").glob("*.*"))[:2]
    ['README.md', 'model.stablehlo']
    """
    check_model("export", model)
    directory = files.local_path(directory)
    files.check_directory_name(directory)
    files.check_unused(directory)
    kind = kind or default_kind(model)
    function, params = as_function(model, kind)
    exported = jax.export.export(function, platforms=PLATFORMS)(
        {name: jax.ShapeDtypeStruct(x.shape, x.dtype) for name, x in params.items()},
        *_inputs(model, kind),
    )
    files.make_directory(directory)
    files.write_bytes(directory / PROGRAM, exported.serialize())
    arrays: Any = {name: np.asarray(x) for name, x in params.items()}
    with files.new_file(directory / PARAMS, "wb") as file:
        np.savez(file, **arrays)
    if model.tokenizer is not None:
        model.tokenizer.save(directory, {"model_max_length": model.max_length})
    inputs_and_outputs = signature(model, kind, exported)
    files.write_json(directory / SIGNATURE, inputs_and_outputs)
    files.write_text(directory / "README.md", _readme(inputs_and_outputs))
    return directory


def signature(model: Model, kind: str, exported: jax.export.Exported) -> dict[str, Any]:
    """The inputs, the outputs and the limits of an export, as plain values."""
    outputs = jax.tree.unflatten(exported.out_tree, exported.out_avals)
    return {
        "format": "jax.export, StableHLO",
        "calling_convention_version": exported.calling_convention_version,
        "platforms": list(exported.platforms),
        "computes": kind,
        "inputs": {
            name: f"{x.dtype}[{', '.join(map(str, x.shape))}]"
            for name, x in zip(_NAMES, _inputs(model, kind), strict=True)
        },
        "outputs": [
            f"{x.dtype}[{', '.join(map(str, x.shape))}]"
            for x in jax.tree.leaves(outputs)
        ],
        "max_length": model.max_length,
        "vocab_size": model.config.vocab_size,
        "labels": list(model.labels),
        "prompt": (model.pooling or Pooling()).prompt,
    }


_NAMES = ("input_ids", "attention_mask", "token_type_ids")


def _inputs(model: Model, kind: str) -> list[jax.ShapeDtypeStruct]:
    """Integers `[B, L]` of any batch and of any length that has positions."""
    choices = kind == "model" and isinstance(model.head, MultipleChoice)
    limit = f"L <= {model.config.max_length}"
    shape = jax.export.symbolic_shape(
        "B, C, L" if choices else "B, L", constraints=(limit,)
    )
    return [jax.ShapeDtypeStruct(shape, jnp.int32)] * len(_NAMES)


def _readme(facts: Mapping[str, Any]) -> str:
    inputs = "\n".join(f"- `{name}`: `{x}`" for name, x in facts["inputs"].items())
    return README.format(
        inputs=inputs,
        outputs=", ".join(f"`{x}`" for x in facts["outputs"]),
        axes="2, 1, 7" if "C" in facts["inputs"]["input_ids"] else "2, 7",
        max_length=facts["max_length"],
        vocab_size=facts["vocab_size"],
    )


README = """# An exported model

StableHLO, written by `bert_jax` through `jax.export`. It runs with jax and NumPy and
does not need `bert_jax`.

```python
from pathlib import Path

import jax.export
import numpy as np

folder = Path(".")
program = jax.export.deserialize((folder / "model.stablehlo").read_bytes())
params = dict(np.load(folder / "params.npz"))

ids = np.ones(({axes}), np.int32)  # token ids, as the tokenizer returns them
mask = np.ones_like(ids)  # 0 where a row is padded
types = np.zeros_like(ids)  # 1 in the second text of a pair
if ids.min() < 0 or ids.max() >= {vocab_size}:  # the program would return NaN
    raise ValueError("an id is outside the vocabulary; was it made by this tokenizer?")
output = jax.jit(program.call)(params, ids, mask, types)
```

In:

{inputs}

Out: {outputs}.

B and L are free, L up to {max_length} here; each shape is compiled once.
`tokenizer.json` is for the `tokenizers` library:
`tokenizers.Tokenizer.from_file("tokenizer.json").encode(text).ids`. `signature.json`
lists the inputs, the outputs and the labels for programs.
"""
