"""A learnt mix of layers, and a logistic regression on it."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
import optax
import scipy.optimize
from jax.flatten_util import ravel_pytree


def scalar_mix(
    layers: jax.Array, weights: jax.Array, gamma: float | jax.Array = 1.0
) -> jax.Array:
    """`gamma` times the mean of layers by softmax(weights), `[layers, ...] -> [...]`.

    ELMo's vector for a task (Peters et al., 2018, equation 1).
    """
    return gamma * jnp.tensordot(jax.nn.softmax(weights), layers, 1)


class MixedRegression:
    """A logistic regression on a mix of layers, whose weights are fitted with it.

    Each layer's numbers are scaled to a mean of 0 and a deviation of 1. There is no
    gamma: the kernel can be as large as it likes, and with a free gamma the penalty on
    it would mean nothing.

    Attributes:
      classes: the labels.
      shares: softmax(weights) after `fit`, one for each layer.
    """

    def __init__(self, C: float, iterations: int):
        self._C, self._iterations = C, iterations

    def fit(self, features: np.ndarray, labels: Sequence[str]) -> None:
        """Fits to features `[N, layers, D]` with the objective of scikit-learn."""
        self.classes, y = np.unique(labels, return_inverse=True)
        self._mean = features.mean(0)
        self._scale = np.maximum(features.std(0), 1e-6)
        x = self._scaled(features)
        start, unflatten = ravel_pytree(
            {
                "weights": np.zeros(features.shape[1], np.float32),
                "kernel": np.zeros((features.shape[2], len(self.classes)), np.float32),
                "bias": np.zeros(len(self.classes), np.float32),
            }
        )

        @jax.jit
        @jax.value_and_grad
        def objective(flat, x, y):
            params = unflatten(flat)
            losses = optax.softmax_cross_entropy_with_integer_labels(
                scores(params, x), y
            )
            return self._C * losses.sum() + (params["kernel"] ** 2).sum() / 2

        solved = scipy.optimize.minimize(
            lambda flat: [
                np.asarray(value, np.float64)
                for value in objective(jnp.asarray(flat, jnp.float32), x, y)
            ],
            np.asarray(start, np.float64),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": self._iterations},
        )
        self._params = unflatten(jnp.asarray(solved.x, jnp.float32))
        self.shares = np.asarray(jax.nn.softmax(self._params["weights"]))

    def predict(self, features: np.ndarray) -> np.ndarray:
        """The likeliest labels `[N]` of `[N, layers, D]`."""
        best = scores(self._params, self._scaled(features)).argmax(-1)
        return self.classes[np.asarray(best)]

    def _scaled(self, features):
        return jnp.asarray((features - self._mean) / self._scale).swapaxes(0, 1)


def scores(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    """`[layers, N, D]` -> `[N, C]`."""
    mixed = scalar_mix(x, params["weights"])
    return mixed @ params["kernel"] + params["bias"][None]
