"""Left-to-right language modelling: each token is predicted from those before it.

BERT's ablation "LTR" (Devlin et al., 2018, section 5.1).
"""

import jax
import jax.numpy as jnp

from bert_jax.models import heads, masks
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


def left_to_right_loss(
    model: heads.MaskedLM,
    params: Params,
    batch: Batch,
    key: jax.Array | None,
    *,
    mask_key: jax.Array,
    masking: Masking,
    vocabulary: Vocabulary,
) -> Totals:
    """mlm_loss and mlm_accuracy of every token but the first of its sequence.

    Evaluation scores the tokens that masked LM would mask, so that both can be
    compared. Here they are not masked: each is predicted from the whole text before it.
    The arguments are those of `masked_lm_loss`.
    """
    if key is None:
        targets = mask_batch(batch, mask_key, masking, vocabulary)
    else:
        targets = next_tokens(batch)
    before = jnp.maximum(targets["positions"] - 1, 0)
    causal = {**batch, "attention_mask": causal_mask(batch["attention_mask"])}
    logits = apply_model(
        model, params, causal, key, batch["input_ids"], positions=before
    )
    real = valid_attention_mask(batch)
    return {
        **token_totals(logits, targets, evaluating=key is None),
        **throughput_totals(model.encoder.config, real, targets["weights"].sum()),
    }


def causal_mask(attention_mask: jax.Array) -> jax.Array:
    """`[B, L]` -> `[B, L, L]`: 1 where a token sees one of its sequence on its left.

    >>> causal_mask(jnp.array([[1, 1, 2, 0]]))[0, :3]  # two sequences in a row
    Array([[1, 0, 0, 0],
           [1, 1, 0, 0],
           [0, 0, 1, 0]], dtype=int32)
    """
    length = attention_mask.shape[1]
    left = jnp.tril(jnp.ones((length, length), bool))
    return (masks.visible(attention_mask)[:, 0] & left[None]).astype(jnp.int32)


def next_tokens(batch: Batch) -> dict[str, jax.Array]:
    """Every token as a target, but for the first of each sequence.

    `positions`, `labels` and `weights` `[B, L]`, as `mask_tokens` returns them.
    """
    mask = batch["attention_mask"]
    is_first = jnp.pad(mask[:, :-1], ((0, 0), (1, 0))) != mask
    return {
        "positions": jnp.broadcast_to(jnp.arange(mask.shape[1])[None], mask.shape),
        "labels": batch["input_ids"],
        "weights": ((mask > 0) & ~is_first).astype(jnp.float32),
    }
