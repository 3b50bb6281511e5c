"""Pooling: one vector of the tokens of a text, as sentence-transformers does it.

`models.pooling` has the functions.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
from flax import struct

from bert_jax.files import read_object, write_json
from bert_jax.models.pooling import (
    MODES,
    Dense,
    check_modes,
    sentence_vectors,
    without_first,
)
from bert_jax.pretrained import dense, modules
from bert_jax.tokenizers import Tokenizer


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
      include_prompt: False leaves the tokens of a prompt out of the pooling.

    A tree of JAX, whose arrays are those of the layers.

    Raises:
      ValueError: for an unknown mode, and for a weighted mean without the prompt.

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
    include_prompt: bool = struct.field(pytree_node=False, default=True)

    def __post_init__(self) -> None:
        check_modes(self.modes)
        if not self.include_prompt and "weightedmean" in self.modes:
            raise ValueError(
                "weightedmean counts the tokens of the prompt, too, so it cannot be "
                "pooled without them; use include_prompt=True, or mean"
            )

    def __call__(self, x: jax.Array, mask: jax.Array, skipped: int = 0) -> jax.Array:
        """Token vectors `[B, L, D]` and mask `[B, L]` -> `[B, width(D)]`.

        Padding, 0 in the mask, has no effect, nor have the first `skipped` tokens.

        >>> import jax.numpy as jnp
        >>> x = jnp.array([[[1.0, 2.0], [3.0, 4.0], [9.0, 9.0]]])
        >>> Pooling(("mean", "cls"))(x, jnp.array([[1, 1, 0]]))
        Array([[2., 3., 1., 2.]], dtype=float32)
        """
        mask = without_first(mask, skipped) if skipped else mask
        return sentence_vectors(x, mask, self.modes, self.dense, self.normalize)

    def skipped(self, prompt: str, tokenizer: Tokenizer | None) -> int:
        """The number of tokens of a prompt that are not pooled, with the one before.

        The token behind a prompt, such as [SEP], is not one of them.
        """
        if self.include_prompt or not prompt or tokenizer is None:
            return 0
        ids = tokenizer(prompt)["input_ids"][0]
        return len(ids) - (int(ids[-1]) in tokenizer.special_ids)

    def width(self, features: int) -> int:
        """Numbers in a vector, from those in the vector of a token."""
        if self.dense:
            return self.dense[-1].kernel.shape[1]
        return len(self.modes) * features

    def describe(self) -> str:
        """The pooling in a few words."""
        layers = [f"dense {layer.kernel.shape[1]}" for layer in self.dense]
        scaled = ["scaled to length 1"] * self.normalize
        without = [] if self.include_prompt else ["prompts left out"]
        pooled = f"{' and '.join(self.modes)} pooling"
        return ", ".join([pooled, *without, *layers, *scaled])


def read(directory: Path) -> Pooling | None:
    """The pooling of a directory; None if it has no `modules.json`."""
    parts = modules.read(directory)
    unknown = [part.kind for part in parts if part.kind not in _KNOWN]
    if unknown:
        raise ValueError(
            f"{directory}/modules.json has {', '.join(unknown)}; "
            f"only {', '.join(_KNOWN)} are supported"
        )
    if not parts:
        return None
    kinds = [part.kind for part in parts]
    if kinds != sorted(kinds, key=_KNOWN.index):
        raise ValueError(
            f"{directory}/modules.json has {', '.join(kinds)}; only the order "
            f"{', '.join(_KNOWN)} is supported"
        )
    config: Mapping[str, Any] = {}
    for part in parts:
        if part.kind == "Pooling":
            config = read_object(part.folder / "config.json")
    prompts = modules.read_prompts(directory)
    return Pooling(
        _modes(config) or ("mean",),
        "Normalize" in kinds,
        prompts.default,
        prompts.named,
        prompts.similarity,
        tuple(dense.read(part.folder) for part in parts if part.kind == "Dense"),
        config.get("include_prompt", True) is not False,
    )


def write(
    directory: Path, pooling: Pooling, max_length: int | None, hidden_size: int
) -> None:
    """Writes the files that sentence-transformers reads beside the model."""
    kinds = ["Transformer", "Pooling", *["Dense"] * len(pooling.dense)]
    kinds += ["Normalize"] * pooling.normalize
    settings: dict[str, Any] = {
        mode.flag: name in pooling.modes for name, mode in MODES.items() if mode.flag
    }
    if _modes(settings) != pooling.modes:  # an order, or a mode, that flags lack
        settings = {"pooling_mode": list(pooling.modes)}
    if not pooling.include_prompt:
        settings["include_prompt"] = False
    folders = modules.write(
        directory,
        [f"sentence_transformers.models.{kind}" for kind in kinds],
        modules.Prompts(pooling.prompt, pooling.prompts, pooling.similarity),
        max_length,
    )
    config = {"word_embedding_dimension": hidden_size, **settings}
    write_json(folders[1] / "config.json", config)
    for folder, layer in zip(folders[2:], pooling.dense, strict=False):
        dense.write(folder, layer)


# In the order in which they run.
_KNOWN = ("Transformer", "Pooling", "Dense", "Normalize")


def _modes(config: Mapping[str, Any]) -> tuple[str, ...]:
    mode = config.get("pooling_mode")
    if mode is None:
        return tuple(k for k, x in MODES.items() if x.flag and config.get(x.flag))
    return (mode,) if isinstance(mode, str) else tuple(mode)
