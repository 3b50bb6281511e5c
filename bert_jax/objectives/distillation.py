"""Knowledge distillation: a student learns the predictions of a teacher.

`distillation_loss` pre-trains a masked LM (DistilBERT, Sanh et al., 2019); the
distances below it serve other models, too.
"""

import functools

import jax
import jax.numpy as jnp

from bert_jax.models import heads
from bert_jax.objectives.losses import (
    Batch,
    Params,
    Totals,
    apply_model,
    throughput_totals,
    token_totals,
    valid_attention_mask,
)
from bert_jax.objectives.masked_lm import mask_batch
from bert_jax.objectives.masking import Masking, Vocabulary

Total = tuple[jax.Array, jax.Array]


def distillation_loss(
    model: heads.MaskedLM,
    params: Params,
    batch: Batch,
    key: jax.Array | None,
    *,
    teacher: heads.MaskedLM | heads.Pretraining,
    mask_key: jax.Array,
    masking: Masking,
    vocabulary: Vocabulary,
    temperature: float,
    masked_only: bool,
) -> Totals:
    """Losses of a student on a batch, as (sum, count).

    Args:
      model, params: the student; `params["teacher"]` are the teacher's.
      batch, key, mask_key, masking, vocabulary: see `masked_lm_loss`.
      teacher: predicts the same vocabulary.
      temperature: at which predictions are compared.
      masked_only: compare predictions of masked tokens only, not of all tokens.

    Returns:
      ce_loss (see `soft_targets`), mlm_loss, mlm_accuracy, cos_loss (see
      `cosine_distance`), tokens and flops.
    """
    masked = mask_batch(batch, mask_key, masking, vocabulary)
    real = valid_attention_mask(batch)
    positions = masked["positions"] if masked_only else None
    weights = masked["weights"] if masked_only else real > 0
    outputs = functools.partial(
        apply_model,
        batch=batch,
        input_ids=masked["input_ids"],
        positions=positions,
        method=states_and_logits,
    )
    states, logits = outputs(model, params, key=key)
    teacher_states, teacher_logits = outputs(teacher, params["teacher"], key=None)
    masked_logits = logits if masked_only else heads.gather(logits, masked["positions"])
    scored = masked["weights"].sum() if masked_only else (real > 0).sum()
    return {
        "ce_loss": soft_targets(logits, teacher_logits, weights, temperature),
        **token_totals(masked_logits, masked, evaluating=key is None),
        "cos_loss": cosine_distance(states, teacher_states, real > 0),
        **throughput_totals(model.encoder.config, real, scored.astype(jnp.float32)),
    }


def states_and_logits(
    head: heads.MaskedLM | heads.Pretraining,
    input_ids: jax.Array,
    attention_mask: jax.Array,
    token_type_ids: jax.Array,
    position_ids: jax.Array,
    *,
    positions: jax.Array | None,
    deterministic: bool,
) -> tuple[jax.Array, jax.Array]:
    """Last states `[B, L, D]`, and logits at `positions` `[B, P]` or everywhere."""
    inputs = input_ids, attention_mask, token_type_ids, position_ids
    x = head.encoder(*inputs, deterministic=deterministic)
    tokens = x if positions is None else heads.gather(x, positions)
    return x, head.mlm(tokens, head.encoder.attend)


def soft_targets(
    logits: jax.Array, targets: jax.Array, weights: jax.Array, temperature: float
) -> Total:
    """Divergence of `[..., V]` logits from those of a teacher, as (sum, count).

    The Kullback-Leibler divergence at a temperature T, times T squared, so that its
    gradients have the size of those of other losses (Hinton et al., 2015, section 2).
    """
    ours = jax.nn.log_softmax(logits / temperature)
    theirs = jax.nn.log_softmax(targets / temperature)
    divergence = jnp.sum(jnp.exp(theirs) * (theirs - ours), -1) * temperature**2
    return (divergence * weights).sum(), weights.sum().astype(jnp.float32)


def squared_distance(
    logits: jax.Array, targets: jax.Array, weights: jax.Array
) -> Total:
    """Squared difference of `[..., 1]` predicted numbers, as (sum, count)."""
    squares = jnp.square(logits - targets)[..., 0]
    return (squares * weights).sum(), weights.sum().astype(jnp.float32)


def cosine_distance(x: jax.Array, y: jax.Array, weights: jax.Array) -> Total:
    """1 - cosine of `[B, L, D]` states, as (sum, count)."""
    x, y = x.astype(jnp.float32), y.astype(jnp.float32)
    norms = jnp.sum(x * x, -1) * jnp.sum(y * y, -1)
    distance = 1 - jnp.sum(x * y, -1) * jax.lax.rsqrt(jnp.maximum(norms, 1e-16))
    return (distance * weights).sum(), weights.sum().astype(jnp.float32)
