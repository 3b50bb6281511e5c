"""Pooling: one vector of the tokens of a text, as sentence-transformers does it.

`models.pooling` has the functions.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
from flax import struct

from bert_jax.files import read_object, write_json
from bert_jax.models.pooling import MODES, Dense, check_modes, sentence_vectors
from bert_jax.pretrained import dense, modules


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
        check_modes(self.modes)

    def __call__(self, x: jax.Array, mask: jax.Array) -> jax.Array:
        """Token vectors `[B, L, D]` and mask `[B, L]` -> `[B, width(D)]`.

        Padding, 0 in the mask, has no effect.

        >>> import jax.numpy as jnp
        >>> x = jnp.array([[[1.0, 2.0], [3.0, 4.0], [9.0, 9.0]]])
        >>> Pooling(("mean", "cls"))(x, jnp.array([[1, 1, 0]]))
        Array([[2., 3., 1., 2.]], dtype=float32)
        """
        return sentence_vectors(x, mask, self.modes, self.dense, self.normalize)

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
    modes: tuple[str, ...] = ()
    for part in parts:
        if part.kind == "Pooling":
            modes = _modes(read_object(part.folder / "config.json"))
    prompts = modules.read_prompts(directory)
    return Pooling(
        modes or ("mean",),
        "Normalize" in kinds,
        prompts.default,
        prompts.named,
        prompts.similarity,
        tuple(dense.read(part.folder) for part in parts if part.kind == "Dense"),
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
    if config.get("include_prompt") is False:
        raise ValueError(
            "1_Pooling/config.json has include_prompt=false, which is not supported; "
            "set it to true"
        )
    mode = config.get("pooling_mode")
    if mode is None:
        return tuple(k for k, x in MODES.items() if x.flag and config.get(x.flag))
    return (mode,) if isinstance(mode, str) else tuple(mode)
