"""Masked language modelling, with or without labelled pairs of sentences.

A pair is labelled by whether its second part follows the first in the text
(next-sentence prediction, BERT) or by whether the two are in order (sentence order,
ALBERT). The loss is the same; the rows say which.
"""

from typing import Any

import jax
import jax.numpy as jnp

from bert_jax.models import heads
from bert_jax.objectives.losses import (
    Batch,
    Params,
    Totals,
    apply_model,
    cross_entropy_totals,
    label_histogram,
    throughput_totals,
    token_totals,
    valid_attention_mask,
    valid_rows,
)
from bert_jax.objectives.masking import Masking, Vocabulary, mask_tokens


def masked_lm_loss(
    model: heads.Pretraining | heads.MaskedLM,
    params: Params,
    batch: Batch,
    key: jax.Array | None,
    *,
    mask_key: jax.Array,
    masking: Masking,
    vocabulary: Vocabulary,
) -> Totals:
    """Losses and accuracies of a batch, as (sum, count).

    Args:
      model, params: the model; `Pretraining` scores pairs too, `MaskedLM` does not.
      batch: `input_ids, attention_mask, token_type_ids, position_ids` `[B, L]`,
        `cls_positions, pair_labels` `[B, S]` (label -1: no pair), `example` and `row`
        `[B]` or `[B, 2]` (see `row_keys`), and in evaluation `valid` `[B]`, false on
        rows that only fill the batch.
      key: of dropout; None means evaluation.
      mask_key: of the masks; the mask of a row depends on it and on `example` alone, or
        on `row` where masks are static.
      masking, vocabulary: how to mask.

    Returns:
      mlm_loss, mlm_accuracy, nsp_loss, nsp_accuracy (natural logarithm; sums in
      float32), tokens and flops; in evaluation also `mlm_labels` `[V]` and `nsp_labels`
      `[2]`: the number of times each label occurs, for the best constant guess.
    """
    masked = mask_batch(batch, mask_key, masking, vocabulary)
    head_inputs: dict[str, Any] = {"positions": masked["positions"]}
    if isinstance(model, heads.Pretraining):
        head_inputs["cls_positions"] = batch["cls_positions"]
    outputs = apply_model(model, params, batch, key, masked["input_ids"], **head_inputs)
    logits, *pair_logits = outputs if isinstance(outputs, tuple) else (outputs,)
    totals = token_totals(logits, masked, evaluating=key is None)
    if pair_logits:
        totals |= pair_totals(pair_logits[0], batch, evaluating=key is None)
    real = valid_attention_mask(batch)
    return totals | throughput_totals(
        model.encoder.config, real, masked["weights"].sum()
    )


def mask_batch(
    batch: Batch, mask_key: jax.Array, masking: Masking, vocabulary: Vocabulary
) -> dict[str, jax.Array]:
    """`mask_tokens` for a batch; rows that only fill the batch predict nothing."""
    numbers = batch["example"] if masking.dynamic else batch["row"]
    inputs = batch["input_ids"], batch["attention_mask"]
    masked = mask_tokens(mask_key, numbers, *inputs, masking, vocabulary)
    return masked | {"weights": masked["weights"] * valid_rows(batch)[:, None]}


def pair_totals(logits: jax.Array, batch: Batch, *, evaluating: bool) -> Totals:
    """nsp_loss and nsp_accuracy of `[B, S, 2]` logits; evaluating, nsp_labels too."""
    labels = jnp.maximum(batch["pair_labels"], 0)
    weights = (batch["pair_labels"] >= 0) * valid_rows(batch)[:, None]
    totals = cross_entropy_totals("nsp", logits, labels, weights)
    if evaluating:
        totals["nsp_labels"] = label_histogram(labels, weights, 2)
    return totals
