"""Replaced-token detection (ELECTRA, Clark et al., 2020).

A small generator fills in masked tokens, and a discriminator learns which tokens of the
result are not the original ones.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn

from bert_jax.models import heads, ops
from bert_jax.objectives.losses import (
    Batch,
    Params,
    Totals,
    apply_model,
    label_histogram,
    throughput_totals,
    token_totals,
    valid_attention_mask,
)
from bert_jax.objectives.masked_lm import mask_batch
from bert_jax.objectives.masking import Masking, Vocabulary, row_keys


@dataclasses.dataclass(frozen=True)
class GeneratorDiscriminator:
    """A discriminator, and a generator that uses the embeddings of the discriminator.

    Parameters are those of the discriminator, and under "generator" those that belong
    to the generator alone: all but the tables and the norm of the embeddings.
    """

    discriminator: heads.ReplacedTokenDetection
    generator: heads.MaskedLM

    @property
    def encoder(self) -> nn.Module:
        """The encoder of the discriminator, which is the result of the training."""
        return self.discriminator.encoder

    def init(self, key: jax.Array, **example_batch: Any) -> dict[str, Params]:
        """Initial parameters of both."""
        first, second = jax.random.split(key)
        params = self.discriminator.init(first, **example_batch)["params"]
        generator = self.generator.init(second, **example_batch)["params"]
        table = generator["encoder"].pop("embeddings")
        if "project" in table:
            generator["encoder"]["embeddings"] = {"project": table["project"]}
        return {"params": {**params, "generator": generator}}


def discriminator_params(params: Params) -> Params:
    """The parameters of the discriminator alone."""
    return {name: x for name, x in params.items() if name != "generator"}


def generator_params(params: Params) -> Params:
    """The parameters of the generator, with the tables it shares."""
    own, shared = params["generator"], dict(params["encoder"]["embeddings"])
    shared.pop("project", None)
    table = {**shared, **own["encoder"].get("embeddings", {})}
    return {**own, "encoder": {**own["encoder"], "embeddings": table}}


def replaced_token_loss(
    model: GeneratorDiscriminator,
    params: Params,
    batch: Batch,
    key: jax.Array | None,
    *,
    mask_key: jax.Array,
    masking: Masking,
    vocabulary: Vocabulary,
) -> Totals:
    """Losses and scores of both models on a batch, as (sum, count).

    The arguments are those of `masked_lm_loss`.

    Returns:
      mlm_loss and mlm_accuracy of the generator, the totals of `detection_totals`,
      tokens, and flops of both.
    """
    masked = mask_batch(batch, mask_key, masking, vocabulary)
    generator_key, discriminator_key = (
        (None, None) if key is None else jax.random.split(key)
    )
    logits = apply_model(
        model.generator,
        generator_params(params),
        batch,
        generator_key,
        masked["input_ids"],
        positions=masked["positions"],
    )
    ids = replace_tokens(batch, masked, logits, mask_key)
    replaced_logits = apply_model(
        model.discriminator,
        discriminator_params(params),
        batch,
        discriminator_key,
        ids,
    )
    replaced = ids != batch["input_ids"]
    return {
        **token_totals(logits, masked, evaluating=key is None),
        **detection_totals(replaced_logits, replaced, batch, evaluating=key is None),
        **_throughput(model, batch, masked["weights"].sum()),
    }


def _throughput(
    model: GeneratorDiscriminator, batch: Batch, predictions: jax.Array
) -> Totals:
    """Real tokens, and the FLOPs of both models."""
    real = valid_attention_mask(batch)
    config = model.generator.encoder.config
    generator = throughput_totals(config, real, predictions)
    totals = throughput_totals(model.encoder.config, real, jnp.zeros(()))
    flops = generator["flops"][0] + totals["flops"][0]
    return totals | {"flops": (flops, jnp.ones(()))}


def replace_tokens(
    batch: Batch, masked: Batch, logits: jax.Array, mask_key: jax.Array
) -> jax.Array:
    """`[B, L]` ids, with samples of the generator in place of the masked tokens.

    Args:
      batch: see `masked_lm_loss`.
      masked: as `mask_batch` returns it.
      logits: `[B, P, V]` of the generator.
      mask_key: of the masks, see `sampling_noise`.
    """
    noise = sampling_noise(batch, logits.shape[1:], mask_key)
    sampled = jnp.argmax(logits + noise, -1).astype(jnp.int32)
    new = jnp.where(masked["weights"] > 0, sampled, masked["labels"])
    put = jax.vmap(lambda ids, positions, x: ids.at[positions].set(x))
    return put(batch["input_ids"], masked["positions"], new)


def sampling_noise(
    batch: Batch, shape: tuple[int, ...], mask_key: jax.Array
) -> jax.Array:
    """Gumbel noise `[B, *shape]`; like masks, it depends on the `example` of a row."""
    key = jax.random.fold_in(mask_key, 1)
    keys = row_keys(key, batch["example"])
    return jax.vmap(lambda key: gumbel(key, shape))(keys)


def gumbel(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Standard Gumbel noise: argmax(logits + noise) is a sample of the softmax."""
    # The middles of 2^23 intervals, which float32 can hold and of which none is 0 or 1.
    uniform = ((ops.hash_bits(key, shape) >> 9) + 0.5) * 2.0**-23
    return -jnp.log(-jnp.log(uniform))


def detection_totals(
    logits: jax.Array, replaced: jax.Array, batch: Batch, *, evaluating: bool
) -> Totals:
    """rtd_loss, rtd_accuracy, rtd_precision and rtd_recall of `[B, L]` logits.

    All real tokens count, special ones included. A token is not `replaced` where the
    generator sampled the original one. In evaluation there is `rtd_labels`, too.
    """
    weights = (valid_attention_mask(batch) > 0).astype(jnp.float32)
    labels, flagged = replaced.astype(jnp.float32), logits > 0
    count, both = weights.sum(), (weights * (flagged & replaced)).sum()
    losses = optax.sigmoid_binary_cross_entropy(logits, labels)
    totals = {
        "rtd_loss": ((losses * weights).sum(), count),
        "rtd_accuracy": (((flagged == replaced) * weights).sum(), count),
        "rtd_precision": (both, (flagged * weights).sum()),
        "rtd_recall": (both, (labels * weights).sum()),
    }
    if evaluating:
        histogram = label_histogram(replaced.astype(jnp.int32), weights, 2)
        totals["rtd_labels"] = histogram
    return totals
