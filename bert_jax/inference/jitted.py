"""What the verbs run on the device: each function compiles once per shape."""

import collections
import functools
import os
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from bert_jax.inference.pooling import normalized, pool
from bert_jax.models import Bert, BertConfig, Pretraining
from bert_jax.pretrained import Pooling


@functools.partial(jax.jit, static_argnums=0)
def outputs(head: nn.Module, params: Any, batch: Mapping[str, jax.Array]) -> Any:
    """What the head gives, as float32."""
    found = head.apply({"params": params}, **batch)
    return jax.tree.map(lambda x: x.astype(jnp.float32), found)


@functools.partial(jax.jit, static_argnums=0)
def hidden_states(
    encoder: Bert, params: Any, batch: Mapping[str, jax.Array]
) -> jax.Array:
    """Hidden states, float32 `[layers + 1, B, L, D]`."""
    found = _seen(encoder, params, batch)["hidden_states"]
    return jnp.stack(found).astype(jnp.float32)


@functools.partial(jax.jit, static_argnums=0)
def attention(
    encoder: Bert, params: Any, batch: Mapping[str, jax.Array]
) -> dict[str, jax.Array]:
    """What the layers sow of their attention, in the order they run, as float32.

    `weights` `[layers, B, H, L, L]`; `queries` and `keys` `[layers, B, L, H, K]`, of
    whose products the weights are the softmax.
    """
    seen = _seen(encoder, params, batch)
    # A layer that runs at several depths has its arrays in the order it ran.
    runs, of_depth = collections.Counter(), []
    for i in encoder.config.layer_order:
        sown = seen[f"layer_{i}"]["attention"]
        of_depth.append({name: x[runs[i]] for name, x in sown.items()})
        runs[i] += 1
    return jax.tree.map(lambda *x: jnp.stack(x).astype(jnp.float32), *of_depth)


def _seen(encoder, params, batch):
    _, seen = encoder.apply({"params": params}, **batch, mutable=["intermediates"])
    return seen["intermediates"]


@functools.partial(jax.jit, static_argnums=(0, 1))
def states(
    encoder: Bert, layers: tuple[int, ...], params: Any, batch: Mapping[str, jax.Array]
) -> jax.Array:
    """Hidden states of some layers side by side, float32 `[B, L, len(layers) * D]`."""
    if layers == (-1,):
        return encoder.apply({"params": params}, **batch).astype(jnp.float32)
    found = _seen(encoder, params, batch)["hidden_states"]
    chosen = [found[i].astype(jnp.float32) for i in layers]
    return jnp.concatenate(chosen, axis=-1)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def pooled(
    encoder: Bert,
    layers: tuple[int, ...],
    how: Pooling,
    params: Any,
    batch: Mapping[str, jax.Array],
) -> jax.Array:
    """One vector a row, float32 `[B, len(how.modes) * len(layers) * D]`."""
    x = states(encoder, layers, params, batch)
    x = pool(x, batch["attention_mask"], how.modes)
    return normalized(x) if how.normalize else x


def fillings(
    head: nn.Module,
    k: int,
    tokens: int,
    mask_id: int,
    params: Any,
    batch: Mapping[str, np.ndarray],
) -> tuple[jax.Array, jax.Array]:
    """Probabilities and ids of the best of the first `tokens` ids at each mask.

    Both are `[B, P, k]`. P is a power of two that holds the masks of any row; rows with
    fewer have their first one again behind them, so that nothing else is taken for
    hidden.
    """
    is_mask = batch["input_ids"] == mask_id
    most = max(is_mask.sum(1).max(), 1)
    size = min(1 << int(most - 1).bit_length(), is_mask.shape[1])
    positions = np.argsort(~is_mask, axis=1, kind="stable")[:, :size]
    held = np.take_along_axis(is_mask, positions, axis=1)
    positions = np.where(held, positions, positions[:, :1])
    return _filled(head, k, tokens, params, batch, positions)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _filled(head, k, tokens, params, batch, positions):
    found = head.apply({"params": params}, **batch, positions=positions)
    logits = found[0] if isinstance(head, Pretraining) else found
    probabilities = jax.nn.softmax(logits.astype(jnp.float32))
    return jax.lax.top_k(probabilities[..., :tokens], k)


def use_compilation_cache(directory: str | os.PathLike = "~/.cache/bert_jax") -> None:
    """Keeps compiled programs on disk: the next process starts without compiling.

    Call it before the first verb. It sets JAX's own compilation cache, for every
    program of the process and however short its compilation was. On a CPU, XLA
    prints an alarm for each program it reads back: it misses "prefer-no-gather" in the
    machine, which is a wish of its own. The environment variable
    `TF_CPP_MIN_LOG_LEVEL=3`, set before Python starts, silences it.
    """
    path = os.path.abspath(os.path.expanduser(directory))
    jax.config.update("jax_compilation_cache_dir", path)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)


def check_ids(batch: Mapping[str, Any], config: BertConfig) -> None:
    """Raises ValueError for a batch whose arrays do not fit each other or the model.

    Ids outside their tables would give NaN.
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
        ids = np.asarray(batch[name])
        if ids.size and not 0 <= ids.min() <= ids.max() < limit:
            wrong = ids.min() if ids.min() < 0 else ids.max()
            raise ValueError(
                f"{name} holds {wrong}, but the model has {limit} of them; "
                "was it made by another tokenizer?"
            )


def check_shapes(batch: Mapping[str, Any]) -> None:
    """Raises ValueError but for arrays of whole numbers, `[B, L]` as `input_ids`."""
    rows = None
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
                f"{name} is {x.dtype}{list(x.shape)}; give whole numbers [B, L]"
            )
        rows = rows or (len(x), x.shape[-1])
        if x.shape[-1] != rows[1] or len(x) not in (1, rows[0]):
            raise ValueError(
                f"{name} has the shape {list(x.shape)}, but input_ids has "
                f"{list(batch['input_ids'].shape)}; give one value for each token"
            )


def check_layers(layers: Sequence[int], config: BertConfig) -> tuple[int, ...]:
    """The layers, each known to be there; 0 stands for the embeddings."""
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
