"""Attention with other weights, in the modules of a model as they are.

Flax lets a function intercept the methods of all modules. This one stands before the
last dense layer of each attention layer, and replaces what that layer reads by the mean
of the values under other weights. Nothing in the library has to know of it.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from bert_jax.models import layers, masks

# Weights float32 [B, H, L, M], the tokens that see each other bool [B, 1, L, M], and
# the number of the layer -> other weights.
Change = Callable[[jax.Array, jax.Array, int], jax.Array]


def intercept(change: Change) -> Callable[..., Any]:
    """An interceptor for `flax.linen.intercept_methods` that changes attention weights.

    Dropout of attention weights does not apply inside it. A model with rotary or
    relative positions has other weights than those that `change` would see: it is made
    for the encoders of `BertConfig`.
    """
    inputs: dict[str, Any] = {}  # of the attention layer that is running

    def interceptor(call: Callable, args: tuple, kwargs: dict, context: Any) -> Any:
        module = context.module
        if isinstance(module, layers.Attention):
            inputs["mask"] = args[1]
        if not isinstance(module.parent, layers.Attention):
            return call(*args, **kwargs)
        if module.name != "out":
            inputs[module.name] = call(*args, **kwargs)
            return inputs[module.name]
        (y,) = args
        heads = module.parent.num_heads
        query, key, value = (
            inputs[name].reshape(*inputs[name].shape[:2], heads, -1)
            for name in ("query", "key", "value")
        )
        layer = int(module.parent.parent.name.removeprefix("layer_"))
        weights_BHLM = layers.attention_weights(query, key, inputs["mask"])
        weights_BHLM = change(weights_BHLM, masks.visible(inputs["mask"]), layer)
        y = jnp.einsum("BHLM,BMHK->BLHK", weights_BHLM.astype(y.dtype), value)
        return call(y.reshape(args[0].shape), **kwargs)

    return interceptor


def uniform(weights: jax.Array, seen: jax.Array) -> jax.Array:
    """The same weight for all tokens that a token sees, `[B, H, L, M]`."""
    return jnp.broadcast_to(seen / seen.sum(-1, keepdims=True), weights.shape)


def permuted(weights: jax.Array, order: jax.Array) -> jax.Array:
    """Weights in another order: token m gets that of token `order[..., m]`."""
    return jnp.take_along_axis(weights, order, axis=-1)


def random_order(key: jax.Array, seen: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """A random order of the tokens that are seen, for each row `[B, H, L]` of weights.

    Padding, which stands behind all tokens, stays there.
    """
    noise = jax.random.uniform(key, shape)
    return jnp.argsort(jnp.where(seen, noise, 2.0), axis=-1)


def largest(weights: jax.Array, seen: jax.Array) -> jax.Array:
    """The largest weights of each text, `[B]`: the mean over heads and tokens."""
    real = seen[:, 0].any(1)  # tokens that a token sees are not padding
    peaks = weights.max(-1).mean(1)
    return (peaks * real).sum(1) / real.sum(1)
