"""The loss and scores of pre-training, on one batch and over many."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

from bert_jax.models import heads, layers
from bert_jax.objectives.masking import Masking, Vocabulary, mask_tokens

# What each question's best constant guess is called, and the histogram it follows from.
GUESSES = {"unigram": "mlm_labels", "nsp_constant": "nsp_labels"}
GUESSES |= {"rtd_constant": "rtd_labels"}

# What is said of each term of an objective, where there is a total of it.
SAID = ("loss", "accuracy", "precision", "recall")

# What a row of prepared data must hold.
INPUTS = ("input_ids", "attention_mask", "token_type_ids", "position_ids")

Totals = dict[str, tuple[jax.Array, jax.Array]]


def pretraining_loss(
    model: heads.Pretraining | heads.MaskedLM,
    params: Any,
    batch: Mapping[str, jax.Array],
    key: jax.Array | None,
    *,
    mask_key: jax.Array,
    masking: Masking,
    vocabulary: Vocabulary,
) -> Totals:
    """Losses and accuracies of a batch, as (sum, count).

    Args:
      model, params: the model; a `MaskedLM` is not asked about pairs.
      batch: `input_ids, attention_mask, token_type_ids, position_ids` `[B, L]`,
        `cls_positions, pair_labels` `[B, S]` (label -1: no pair), `example` and `row`
        `[B]`, and in evaluation `valid` `[B]`, false on rows that only fill the batch.
      key: of dropout; None means evaluation.
      mask_key: of the masks; a row's mask depends on it and on `example` alone, or on
        `row` where masks are static.
      masking, vocabulary: how to mask.

    Returns:
      mlm_loss, mlm_accuracy, nsp_loss, nsp_accuracy (natural logarithm; sums in
      float32), tokens and flops; in evaluation also `mlm_labels` `[V]` and `nsp_labels`
      `[2]`: how often each answer was right, which gives the best constant guess.
    """
    hidden = hide(batch, mask_key, masking, vocabulary)
    asked = {"positions": hidden["positions"]}
    if isinstance(model, heads.Pretraining):
        asked["cls_positions"] = batch["cls_positions"]
    found = applied(model, params, batch, key, hidden["input_ids"], **asked)
    logits, *pairs = found if isinstance(found, tuple) else (found,)
    return {
        **token_totals(logits, hidden, counts_labels=key is None),
        **(pair_totals(pairs[0], batch, counts_labels=key is None) if pairs else {}),
        **work(model.encoder.config, real(batch), hidden["weights"].sum()),
    }


def hide(
    batch: Mapping[str, jax.Array],
    mask_key: jax.Array,
    masking: Masking,
    vocabulary: Vocabulary,
) -> dict[str, jax.Array]:
    """See `mask_tokens`; rows that only fill the batch predict nothing."""
    numbers = batch["example"] if masking.dynamic else batch["row"]
    inputs = batch["input_ids"], batch["attention_mask"]
    hidden = mask_tokens(mask_key, numbers, *inputs, masking, vocabulary)
    return hidden | {"weights": hidden["weights"] * valid_rows(batch)[:, None]}


def valid_rows(batch: Mapping[str, jax.Array]) -> jax.Array:
    """`[B]`, 0 on rows that only fill the batch."""
    everywhere = jnp.ones(len(batch["input_ids"]), bool)
    return batch.get("valid", everywhere).astype(jnp.float32)


def real(batch: Mapping[str, jax.Array]) -> jax.Array:
    """The attention mask `[B, L]` of the rows that count, 0 elsewhere."""
    return batch["attention_mask"] * valid_rows(batch).astype(jnp.int32)[:, None]


def applied(
    model: nn.Module,
    params: Any,
    batch: Mapping[str, jax.Array],
    key: jax.Array | None,
    input_ids: jax.Array,
    method: Callable | None = None,
    **asked: jax.Array,
) -> Any:
    """What a head makes of other `input_ids` in the rows of a batch.

    Dropout is drawn from `key` unless it is None; `asked` are inputs of the head alone.
    """
    return model.apply(
        {"params": params},
        **{name: batch[name] for name in INPUTS[1:]} | asked,
        input_ids=input_ids,
        deterministic=key is None,
        rngs=None if key is None else {"dropout": key},
        method=method,
    )


def token_totals(
    logits: jax.Array, hidden: Mapping[str, jax.Array], counts_labels: bool
) -> Totals:
    """mlm_loss and mlm_accuracy of `[B, P, V]` logits, and the labels' histogram."""
    labels, weights = hidden["labels"], hidden["weights"]
    totals = _scores("mlm", logits, labels, weights)
    if counts_labels:
        totals["mlm_labels"] = histogram(labels, weights, logits.shape[-1])
    return totals


def pair_totals(
    logits: jax.Array, batch: Mapping[str, jax.Array], counts_labels: bool
) -> Totals:
    """nsp_loss and nsp_accuracy of `[B, S, 2]` logits, and the labels' histogram."""
    labels = jnp.maximum(batch["pair_labels"], 0)
    known = (batch["pair_labels"] >= 0) * valid_rows(batch)[:, None]
    totals = _scores("nsp", logits, labels, known)
    if counts_labels:
        totals["nsp_labels"] = histogram(labels, known, 2)
    return totals


def work(config: Any, attention_mask: jax.Array, predictions: jax.Array) -> Totals:
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


def histogram(
    labels: jax.Array, weights: jax.Array, size: int
) -> tuple[jax.Array, jax.Array]:
    """How often each of `size` labels is right, and how many there are."""
    return jnp.zeros(size).at[labels].add(weights), weights.sum()


def summary(
    totals: Mapping[str, tuple[np.ndarray, np.ndarray]], objective: Mapping[str, float]
) -> dict[str, float]:
    """Averages by their public names: `loss`, and what is said of each of its terms.

    After evaluation, `unigram_accuracy`, `unigram_loss` and the like are those of the
    best constant guess on the same rows: what a model that has learnt nothing reaches.
    """
    average = {k: np.asarray(s) / max(float(n), 1e-9) for k, (s, n) in totals.items()}
    terms = [f"{name.removesuffix('_loss')}_{x}" for name in objective for x in SAID]
    shares = {k: average[x] for k, x in GUESSES.items() if x in average}
    return {
        "loss": sum(w * float(average[name]) for name, w in objective.items()),
        **{name: float(average[name]) for name in terms if name in average},
        **{f"{guess}_accuracy": float(x.max()) for guess, x in shares.items()},
        **{f"{guess}_loss": _entropy(x) for guess, x in shares.items()},
    }


def _entropy(shares):
    """The loss of a guess that gives each label its share."""
    return float(-np.sum(shares * np.log(np.maximum(shares, 1e-30))))
