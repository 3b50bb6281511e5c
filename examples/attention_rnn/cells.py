"""Recurrent cells with the equations of PyTorch: GRU and LSTM.

A state is a tuple of arrays `[B, D]`, of which the first is the output. The part of a
step that depends on its input alone, `gates`, is computed for all steps at once.
"""

from typing import ClassVar

import jax
import jax.numpy as jnp
from flax import linen as nn

State = tuple[jax.Array, ...]


class GRU(nn.Module):
    """Gated recurrent unit (Cho et al., 2014, section 2.3), reset after the product.

    The new content is tanh(W x + b + r · (U h + b')), as in `torch.nn.GRU`; the paper
    has tanh(W x + U (r · h)), which needs a second product one after the other.
    """

    size: int
    dtype: str = "float32"

    arrays: ClassVar[int] = 1  # of a state

    @property
    def width(self) -> int:
        """Of `gates`."""
        return 3 * self.size

    def setup(self):
        recurrent = nn.initializers.orthogonal()
        self.input = nn.Dense(self.width, dtype=self.dtype)
        self.hidden = nn.Dense(self.width, dtype=self.dtype, kernel_init=recurrent)

    def gates(self, x: jax.Array) -> jax.Array:
        """`[..., E] -> [..., 3 D]`: reset, update and new content of inputs."""
        return self.input(x)

    def __call__(self, state: State, gates: jax.Array) -> State:
        (h,) = state
        reset, update, new = jnp.split(gates, 3, axis=-1)
        h_reset, h_update, h_new = jnp.split(self.hidden(h), 3, axis=-1)
        new = jnp.tanh(new + jax.nn.sigmoid(reset + h_reset) * h_new)
        update = jax.nn.sigmoid(update + h_update)
        return ((1 - update) * new + update * h,)


class LSTM(nn.Module):
    """Long short-term memory (Hochreiter and Schmidhuber, 1997), with a forget gate.

    Gates are in the order of `torch.nn.LSTM`: input, forget, cell, output. The bias of
    the forget gate starts at 1 (Jozefowicz et al., 2015, section 5).
    """

    size: int
    dtype: str = "float32"

    arrays: ClassVar[int] = 2  # of a state: the output h and the cell c

    @property
    def width(self) -> int:
        """Of `gates`."""
        return 4 * self.size

    def setup(self):
        def bias(key, shape, dtype):
            return jnp.repeat(jnp.array([0, 1, 0, 0], dtype), shape[0] // 4)

        recurrent = nn.initializers.orthogonal()
        self.input = nn.Dense(self.width, dtype=self.dtype, bias_init=bias)
        self.hidden = nn.Dense(
            self.width, use_bias=False, dtype=self.dtype, kernel_init=recurrent
        )

    def gates(self, x: jax.Array) -> jax.Array:
        """`[..., E] -> [..., 4 D]`: input, forget, cell and output gates of inputs."""
        return self.input(x)

    def __call__(self, state: State, gates: jax.Array) -> State:
        h, c = state
        i, f, g, o = jnp.split(gates + self.hidden(h), 4, axis=-1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        return jax.nn.sigmoid(o) * jnp.tanh(c), c


CELLS = {"gru": GRU, "lstm": LSTM}
