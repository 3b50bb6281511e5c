"""Products of matrices, forward and backward."""

import jax
import jax.numpy as jnp


def flat_dot(x: jax.Array, kernel: jax.Array, dtype: str) -> jax.Array:
    """`[..., D] @ [D, F] -> [..., F]`, as one matrix product of two matrices.

    XLA on CPU is up to 15 % slower on products with three-dimensional operands.
    """
    y = product(x.reshape(-1, x.shape[-1]).astype(dtype), kernel.astype(dtype))
    return y.reshape(*x.shape[:-1], kernel.shape[-1])


@jax.custom_vjp
def product(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """`[N, D] @ [D, F] -> [N, F]` in the dtype of both, added up in float32.

    XLA's CPU backend multiplies bfloat16 at twice the rate of float32 where the result
    is said to be float32, and the first factor lies in memory as it is multiplied; it
    turns all others into float32 before. Other backends need none of this, and sums
    over devices would cross in float32.
    """
    return _dot(x, kernel, 1, 0)


def _backward(saved, g):
    x, kernel = saved
    return _dot(g, kernel, 1, 1), _dot(x, g, 0, 0)


product.defvjp(lambda x, kernel: (product(x, kernel), (x, kernel)), _backward)


def _dot(a, b, i, j):
    """Sums over axis `i` of `a` and `j` of `b`."""

    def plain(a, b):
        return jax.lax.dot_general(a, b, (((i,), (j,)), ((), ())))

    def on_cpu(a, b):
        if i == 0:
            # Flat behind a barrier, or the compiler would fold the turn into the dot.
            flat = jax.lax.optimization_barrier(a.T.reshape(-1))
            a = flat.reshape(a.shape[::-1])
        axes = ((1,), (j,)), ((), ())
        y = jax.lax.dot_general(a, b, axes, preferred_element_type=jnp.float32)
        return y.astype(a.dtype)

    if a.dtype != jnp.bfloat16:
        return plain(a, b)
    return jax.lax.platform_dependent(a, b, cpu=on_cpu, default=plain)
