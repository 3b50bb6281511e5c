"""Sums and counts that all objectives return, and the helpers that compute them.

A loss or a score over micro-batches, devices or batches is the sum of its sums divided
by the sum of its counts. So objectives return both, and divide nothing themselves.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

from bert_jax.models import masks
from bert_jax.models.config import EncoderConfig

# (sum, count) of each quantity, by name.
Totals = dict[str, tuple[jax.Array, jax.Array]]
Batch = Mapping[str, jax.Array]
Params = Mapping[str, Any]

# Arrays in a row of prepared data that an encoder reads.
INPUTS = ("input_ids", "attention_mask", "token_type_ids", "position_ids")

# Names of the best constant guess for each task, and the label histogram behind it.
CONSTANT_GUESSES = {
    "unigram": "mlm_labels",
    "nsp_constant": "nsp_labels",
    "rtd_constant": "rtd_labels",
}

# Averages that are reported for each term of an objective, where it has them.
REPORTED = ("loss", "accuracy", "precision", "recall")


def apply_model(
    model: nn.Module,
    params: Params,
    batch: Batch,
    key: jax.Array | None,
    input_ids: jax.Array,
    method: Callable | None = None,
    **head_inputs: Any,
) -> Any:
    """Applies a model to the rows of a batch, with other `input_ids` in them.

    Args:
      model, params, batch: as in every objective.
      key: of dropout; None turns dropout off.
      input_ids: `[B, L]`.
      method: the function of the module to call; None calls the module.
      head_inputs: further inputs, which only the head reads.
    """
    inputs: dict[str, Any] = {name: batch[name] for name in INPUTS[1:]} | head_inputs
    return model.apply(
        {"params": params},
        input_ids,
        **inputs,
        deterministic=key is None,
        rngs=None if key is None else {"dropout": key},
        method=method,
    )


def valid_rows(batch: Batch) -> jax.Array:
    """`[B]`: 1 for rows of data, 0 for rows that only fill the batch."""
    everywhere = jnp.ones(len(batch["input_ids"]), bool)
    return batch.get("valid", everywhere).astype(jnp.float32)


def valid_attention_mask(batch: Batch) -> jax.Array:
    """The attention mask `[B, L]`, 0 in rows that only fill the batch."""
    return batch["attention_mask"] * valid_rows(batch).astype(jnp.int32)[:, None]


def cross_entropy_totals(
    name: str, logits: jax.Array, labels: jax.Array, weights: jax.Array
) -> Totals:
    """Cross-entropy and accuracy of `[..., C]` logits: `<name>_loss, <name>_accuracy`.

    `labels` `[...]` are classes, and `weights` `[...]` are 0 where nothing counts.
    """
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    right = logits.argmax(-1) == labels
    count = weights.sum()
    return {
        f"{name}_loss": ((losses * weights).sum(), count),
        f"{name}_accuracy": ((right * weights).sum(), count),
    }


def token_totals(logits: jax.Array, targets: Batch, *, evaluating: bool) -> Totals:
    """mlm_loss and mlm_accuracy of `[B, P, V]` logits; when evaluating, mlm_labels too.

    `targets` has `labels` and `weights` `[B, P]`, as `mask_tokens` returns them.
    """
    labels, weights = targets["labels"], targets["weights"]
    totals = cross_entropy_totals("mlm", logits, labels, weights)
    if evaluating:
        totals["mlm_labels"] = label_histogram(labels, weights, logits.shape[-1])
    return totals


def label_histogram(
    labels: jax.Array, weights: jax.Array, size: int
) -> tuple[jax.Array, jax.Array]:
    """The weight of each of `size` labels, `[size]`, and of all of them."""
    return jnp.zeros(size).at[labels].add(weights), weights.sum()


def throughput_totals(
    config: EncoderConfig, attention_mask: jax.Array, predictions: jax.Array
) -> Totals:
    """`tokens` and `flops`: real tokens, and the FLOPs that count towards MFU.

    Args:
      config: the encoder's.
      attention_mask: `[B, L]`.
      predictions: the number of tokens scored over the vocabulary, a float.
    """
    tokens = jnp.sum(attention_mask > 0, dtype=jnp.float32)
    pairs = {
        window: jnp.sum(
            masks.visible(masks.Mask(attention_mask, window=window)),
            dtype=jnp.float32,
        )
        for window in set(config.windows)
    }
    seen = sum(pairs[window] for window in config.windows) / len(config.windows)
    flops = config.training_flops(tokens=tokens, seen=seen, predictions=predictions)
    return {
        "tokens": (tokens, jnp.ones(())),
        "flops": (jnp.asarray(flops), jnp.ones(())),
    }


def summarize(
    totals: Mapping[str, tuple[np.ndarray, np.ndarray]],
    loss_weights: Mapping[str, float],
) -> dict[str, float]:
    """Averages under their public names: `loss`, and the scores of each of its terms.

    After evaluation there are also `unigram_loss`, `unigram_accuracy` and the like:
    those of the best constant guess on the same rows, which is the score of a model
    that has learnt nothing.
    """
    average = {k: np.asarray(s) / max(float(n), 1e-9) for k, (s, n) in totals.items()}
    names = [
        f"{term.removesuffix('_loss')}_{score}"
        for term in loss_weights
        for score in REPORTED
    ]
    shares = {k: average[x] for k, x in CONSTANT_GUESSES.items() if x in average}
    return {
        "loss": sum(w * float(average[term]) for term, w in loss_weights.items()),
        **{name: float(average[name]) for name in names if name in average},
        **{f"{guess}_accuracy": float(x.max()) for guess, x in shares.items()},
        **{f"{guess}_loss": _entropy(x) for guess, x in shares.items()},
    }


def _entropy(shares: np.ndarray) -> float:
    """The cross-entropy of a guess that gives each label its share."""
    return float(-np.sum(shares * np.log(np.maximum(shares, 1e-30))))
