"""Jitted functions that several methods share; each compiles once per shape."""

import collections
import functools
import os
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from bert_jax import files
from bert_jax.pretrained import Pooling


@functools.partial(jax.jit, static_argnums=0)
def outputs(
    head: nn.Module, params: Mapping[str, Any], batch: Mapping[str, Any]
) -> Any:
    """The output of a head as float32."""
    output = head.apply({"params": params}, **batch)
    return jax.tree.map(lambda x: x.astype(jnp.float32), output)


@functools.partial(jax.jit, static_argnums=0)
def hidden_states(
    encoder: nn.Module, params: Mapping[str, Any], batch: Mapping[str, Any]
) -> jax.Array:
    """Hidden states, float32 `[layers + 1, B, L, D]`."""
    states = _intermediates(encoder, params, batch)["hidden_states"]
    return jnp.stack(states).astype(jnp.float32)


@functools.partial(jax.jit, static_argnums=0)
def attention_arrays(
    encoder: nn.Module, params: Mapping[str, Any], batch: Mapping[str, Any]
) -> dict[str, jax.Array]:
    """Attention of all layers in the order they run, as float32.

    `weights` `[layers, B, H, L, L]` are the softmax of the products of `queries` and
    `keys` `[layers, B, L, H, K]`.
    """
    intermediates = _intermediates(encoder, params, batch)
    # A layer that runs at several depths has its arrays in the order it ran.
    runs: collections.Counter[int] = collections.Counter()
    by_depth = []
    for i in encoder.config.layer_order:
        arrays = intermediates[f"layer_{i}"]["attention"]
        by_depth.append({name: x[runs[i]] for name, x in arrays.items()})
        runs[i] += 1
    return jax.tree.map(lambda *x: jnp.stack(x).astype(jnp.float32), *by_depth)


@functools.partial(jax.jit, static_argnums=(0, 1))
def states(
    encoder: nn.Module,
    layers: tuple[int, ...],
    params: Mapping[str, Any],
    batch: Mapping[str, Any],
) -> jax.Array:
    """Hidden states of some layers side by side, float32 `[B, L, len(layers) * D]`."""
    if layers == (-1,):
        x: Any = encoder.apply({"params": params}, **batch)
        return x.astype(jnp.float32)
    of_all = _intermediates(encoder, params, batch)["hidden_states"]
    return jnp.concatenate([of_all[i].astype(jnp.float32) for i in layers], axis=-1)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def pooled(
    encoder: nn.Module,
    layers: tuple[int, ...],
    skipped: int,
    pooling: Pooling,
    params: Mapping[str, Any],
    batch: Mapping[str, Any],
) -> jax.Array:
    """One vector a row, float32 `[B, pooling.width(len(layers) * D)]`.

    The first `skipped` tokens are not pooled.
    """
    x = states(encoder, layers, params, batch)
    return pooling(x, batch["attention_mask"], skipped)


def _intermediates(
    encoder: nn.Module, params: Mapping[str, Any], batch: Mapping[str, Any]
) -> Mapping[str, Any]:
    """The arrays that the layers of an encoder sow."""
    _, state = encoder.apply({"params": params}, **batch, mutable=["intermediates"])
    return state["intermediates"]


def use_compilation_cache(directory: str | os.PathLike = "~/.cache/bert_jax") -> None:
    """Keeps compiled programs on disk: the next process starts without compiling.

    Call it before the first method. It sets JAX's own compilation cache for every
    program of the process, however short its compilation was. On a CPU, XLA prints an
    error for each program that it reads back: it misses "prefer-no-gather", one of its
    own settings, among the features of the machine. The environment variable
    `TF_CPP_MIN_LOG_LEVEL=3`, set before Python starts, silences it.

    >>> use_compilation_cache("cache")  # doctest: +SKIP
    """
    path = files.local_path(directory).absolute()
    jax.config.update("jax_compilation_cache_dir", str(path))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
