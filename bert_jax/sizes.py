"""Bytes of arrays, and of the arrays that a backward pass keeps."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp


def bytes_in(tree: Any) -> int:
    """Bytes of the arrays of a tree, random keys left out: they are very small."""
    leaves = jax.tree.leaves(tree)
    plain = [x for x in leaves if not jnp.issubdtype(x.dtype, jax.dtypes.extended)]
    return sum(x.size * x.dtype.itemsize for x in plain)


def backward_bytes(
    loss: Callable[[Any, Any], jax.Array], params: Any, batch: Any
) -> int:
    """Bytes that are kept from the forward to the backward pass of `loss`.

    Nothing is computed; parameters are not counted.

    Args:
      loss: parameters and a batch -> a number.
      params, batch: trees of arrays, or of their shapes.
    """

    def backward(params, batch):
        return jax.vjp(lambda params: loss(params, batch), params)[1]

    residuals = jax.eval_shape(backward, params, batch)
    return max(0, bytes_in(residuals) - bytes_in(params))


def format_bytes(size: float) -> str:
    """A size in a unit of its order, `1.3 GB`, in powers of ten."""
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:,.1f} GB"
