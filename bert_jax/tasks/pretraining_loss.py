"""The loss and scores of pre-training, on one batch and over many."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from bert_jax.masking import Masking, Vocabulary, mask_tokens
from bert_jax.models import heads, layers

# The best constant guess, and the histogram it follows from.
GUESSES = {"unigram_accuracy": "mlm_labels", "nsp_constant_accuracy": "nsp_labels"}

# What a row of prepared data must hold.
INPUTS = ("input_ids", "attention_mask", "token_type_ids", "position_ids")


def pretraining_loss(
    model: heads.Pretraining | heads.MaskedLM,
    params: Any,
    batch: Mapping[str, jax.Array],
    key: jax.Array | None,
    *,
    mask_key: jax.Array,
    masking: Masking,
    vocabulary: Vocabulary,
) -> dict[str, tuple[jax.Array, jax.Array]]:
    """Losses and accuracies of a batch, as (sum, count).

    Args:
      model, params: the model.
      batch: `input_ids, attention_mask, token_type_ids, position_ids` `[B, L]`,
        `cls_positions, pair_labels` `[B, S]` (label -1: no pair), `example` `[B]`, and
        in evaluation `valid` `[B]`, false on rows that only fill the batch.
      key: of dropout; None means evaluation.
      mask_key: of the masks; a row's mask depends on it and on `example` alone.
      masking, vocabulary: how to mask.

    Returns:
      mlm_loss, mlm_accuracy, nsp_loss, nsp_accuracy (natural logarithm; sums in
      float32), tokens and flops; in evaluation also `mlm_labels` `[V]` and `nsp_labels`
      `[2]`: how often each answer was right, which gives the best constant guess.
    """
    hidden = mask_tokens(
        mask_key,
        batch["example"],
        batch["input_ids"],
        batch["attention_mask"],
        masking,
        vocabulary,
    )
    valid = batch.get("valid", jnp.ones(len(batch["input_ids"]), bool))[:, None]
    token_logits, pair_logits = _logits(model, params, batch, hidden, key)
    labels, weights = hidden["labels"], hidden["weights"] * valid
    pairs = jnp.maximum(batch["pair_labels"], 0)
    known = ((batch["pair_labels"] >= 0) & valid).astype(jnp.float32)
    totals = {
        **_scores("mlm", token_logits, labels, weights),
        **_scores("nsp", pair_logits, pairs, known),
        **work(model.encoder.config, batch["attention_mask"] * valid, weights.sum()),
    }
    if key is None:
        V = token_logits.shape[-1]
        totals["mlm_labels"] = _histogram(labels, weights, V), weights.sum()
        totals["nsp_labels"] = _histogram(pairs, known, 2), known.sum()
    return totals


def _logits(model, params, batch, hidden, key):
    """Logits of tokens `[B, P, V]` and of pairs `[B, S, 2]`, 0 without a head."""
    has_pairs = isinstance(model, heads.Pretraining)
    of_pairs = {"cls_positions": batch["cls_positions"]} if has_pairs else {}
    found = model.apply(
        {"params": params},
        **{name: batch[name] for name in INPUTS[1:]},
        **of_pairs,
        input_ids=hidden["input_ids"],
        positions=hidden["positions"],
        deterministic=key is None,
        rngs=None if key is None else {"dropout": key},
    )
    return found if has_pairs else (found, jnp.zeros((*batch["pair_labels"].shape, 2)))


def work(
    config: Any, attention_mask: jax.Array, predictions: jax.Array
) -> dict[str, tuple[jax.Array, jax.Array]]:
    """Real tokens in a mask `[B, L]`, and the FLOPs that count as useful.

    `predictions` is how many tokens are scored over the vocabulary, as a float.
    """
    tokens = jnp.sum(attention_mask > 0, dtype=jnp.float32)
    seen = {
        window: jnp.sum(
            layers.visible(layers.Mask(attention_mask, window=window)),
            dtype=jnp.float32,
        )
        for window in set(config.windows)
    }
    seen = sum(seen[window] for window in config.windows) / len(config.windows)
    flops = model_flops(config, tokens=tokens, seen=seen, predictions=predictions)
    return {"tokens": (tokens, jnp.ones(())), "flops": (flops, jnp.ones(()))}


def model_flops(
    config: Any, *, tokens: jax.Array, seen: jax.Array, predictions: jax.Array
) -> jax.Array:
    """FLOPs of one update, as MFU counts them: products only, backward twice forward.

    Args:
      config: the encoder's.
      tokens, seen, predictions: floats: real tokens, (query, key) pairs that a layer's
        attention lets through, and tokens scored over the vocabulary.
    """
    # Floats, for integers of these sizes need not fit into 32 bits.
    D, F = float(config.hidden_size), float(config.intermediate_size)
    block = 4 * D * D + config.mlp_kernels * D * F
    blocks = config.num_hidden_layers * (block * tokens + 2 * D * seen)
    return 6.0 * (blocks + predictions * (D * D + D * config.vocab_size))


def _scores(name, logits, labels, weights):
    """Loss and accuracy of `[..., C]` logits."""
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    right = logits.argmax(-1) == labels
    count = weights.sum()
    return {
        f"{name}_loss": ((losses * weights).sum(), count),
        f"{name}_accuracy": ((right * weights).sum(), count),
    }


def _histogram(labels, weights, size):
    return jnp.zeros(size).at[labels].add(weights)


def summary(totals: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> dict[str, float]:
    """Averages by their public names.

    After evaluation, `unigram_accuracy` and `nsp_constant_accuracy` are those of the
    best constant guess on the same rows: what a model that has learnt nothing reaches.
    """
    average = {k: np.asarray(s) / max(float(n), 1e-9) for k, (s, n) in totals.items()}
    named = {
        name: float(average[name])
        for name in ("mlm_loss", "mlm_accuracy", "nsp_loss", "nsp_accuracy")
    }
    return {
        "loss": named["mlm_loss"] + named["nsp_loss"],
        **named,
        **{
            guess: float(average[labels].max())
            for guess, labels in GUESSES.items()
            if labels in average
        },
    }
