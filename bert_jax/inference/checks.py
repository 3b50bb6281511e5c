"""Checks of arguments: each raises ValueError with what to do, before anything runs."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import jax
import numpy as np
from flax import linen as nn

from bert_jax.inference import summary
from bert_jax.models.config import EncoderConfig

if TYPE_CHECKING:
    from bert_jax.inference.model import Model


def check_head(
    head: nn.Module, kinds: tuple[type[nn.Module], ...], ability: str, remedy: str
) -> None:
    """Checks that a head is of one of the `kinds` that have the `ability`."""
    if not isinstance(head, kinds):
        raise ValueError(
            f"this model cannot {ability}: its head is for "
            f"{summary.head_name(head)}; {remedy}"
        )


def longer_rows(model: "Model") -> str:
    """Advice for texts that are longer than the rows of a model."""
    positions = model.config.max_length
    if model.max_length < positions:
        return f"for up to {positions}, set model.max_length = {positions}"
    return "split them, for the model has no more positions"


def check_string(name: str, value: Any) -> None:
    """Checks that an argument is one string."""
    if not isinstance(value, str):
        raise ValueError(f"{name}={value!r:.60}; give one string")


class Prompted(Protocol):
    """Settings of vectors with prompts: a default one, and others by name."""

    @property
    def prompt(self) -> str:
        """Text to put before every text."""
        ...

    @property
    def prompts(self) -> tuple[tuple[str, str], ...]:
        """(name, text) of the others."""
        ...


def prompt_text(settings: Prompted, name: str | None) -> str:
    """The text of a prompt by its name, of the default one for None."""
    prompts = dict(settings.prompts)
    if name is None:
        return settings.prompt
    if name not in prompts:
        known = ", ".join(prompts) or "no prompt"
        raise ValueError(f"prompt={name!r} is unknown; this model has {known}")
    return prompts[name]


def check_count(name: str, value: int) -> None:
    """Checks that an argument is a whole number of at least 1."""
    if not isinstance(value, int | np.integer):
        raise ValueError(f"{name}={value!r:.60}; it must be a whole number")
    if value < 1:
        raise ValueError(f"{name}={value}; it must be at least 1")


def check_ids(batch: Mapping[str, Any], config: EncoderConfig) -> None:
    """Checks that the arrays of a batch fit each other and the tables of the model.

    An id outside its table would give NaN.
    """
    check_shapes(batch)
    limits = {
        "input_ids": config.vocab_size,
        "position_ids": config.max_position_embeddings,
    }
    if config.type_vocab_size:
        limits["token_type_ids"] = config.type_vocab_size
    for name, limit in limits.items():
        if batch.get(name) is None:
            continue
        if isinstance(batch[name], jax.core.Tracer):
            raise ValueError(
                "model(**batch) checks its ids, which jax.jit and jax.vmap hide; use "
                "bert_jax.as_function(model), or model.head.apply in their place"
            )
        ids = np.asarray(batch[name])
        if ids.size and not 0 <= ids.min() <= ids.max() < limit:
            wrong = ids.min() if ids.min() < 0 else ids.max()
            raise ValueError(
                f"{name} holds {wrong}, but the model has {limit} of them; "
                "was it made by another tokenizer?"
            )


def check_shapes(batch: Mapping[str, Any]) -> None:
    """Checks that arrays hold integers and have the shape `[B, L]` of `input_ids`."""
    rows: tuple[int, int] | None = None
    for name in ("input_ids", "attention_mask", "token_type_ids", "position_ids"):
        x = batch.get(name)
        if x is None:
            continue
        if not isinstance(x, np.ndarray | jax.Array):
            raise ValueError(
                f"{name} is a {type(x).__name__}; give an array of NumPy or JAX, such "
                "as model.tokenizer(texts) has"
            )
        if x.ndim < 2 or x.dtype.kind not in "iu":
            raise ValueError(
                f"{name} is {x.dtype}{list(x.shape)}; give integers [B, L]"
            )
        rows = rows or (len(x), x.shape[-1])
        if x.shape[-1] != rows[1] or len(x) not in (1, rows[0]):
            raise ValueError(
                f"{name} has the shape {list(x.shape)}, but input_ids has "
                f"{list(batch['input_ids'].shape)}; give one value for each token"
            )


def check_layers(layers: Sequence[int], config: EncoderConfig) -> tuple[int, ...]:
    """The layers as a tuple, each checked to exist; 0 is the embeddings."""
    depth = len(config.layer_order)
    if not isinstance(layers, Sequence) or not layers:
        raise ValueError(f"layers={layers!r}; give a tuple of numbers, such as (-1,)")
    for i in layers:
        if not -depth - 1 <= i <= depth:
            raise ValueError(
                f"layers={tuple(layers)}: there is no layer {i}; "
                f"choose from 0 (embeddings) to {depth}, or from the end"
            )
    return tuple(layers)
