"""A left-to-right language model on the rows of pre-training, to compare with.

BERT's ablation "LTR" (Devlin et al., 2018, section 5.1): a token sees what stands to
its left alone, and each token is predicted from there. What is saved has the names of a
BERT, but means something only under such a mask.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import linen as nn

from bert_jax.models import layers
from bert_jax.objectives.masked_lm import Totals, applied, real, token_totals, work
from bert_jax.tasks import pretraining
from bert_jax.tasks.pretraining import PretrainingConfig


@dataclasses.dataclass(frozen=True)
class LeftToRightTask(pretraining.PretrainingTask):
    """Left to right with its rows at hand."""

    @property
    def asks_pairs(self) -> bool:
        """Never: [CLS] sees nothing."""
        return False

    def loss(self, model: nn.Module, params, batch, key) -> Totals:
        """mlm_loss and mlm_accuracy of every token but the first of its sequence.

        In evaluation of those tokens that masked LM hides there, which are not hidden
        here: each is predicted from the whole text to its left.
        """
        asked = following(batch) if key is not None else self.hide(batch, key)
        before = jnp.maximum(asked["positions"] - 1, 0)
        seen = batch | {"attention_mask": leftwards(batch["attention_mask"])}
        logits = applied(model, params, seen, key, batch["input_ids"], positions=before)
        return {
            **token_totals(logits, asked, counts_labels=key is None),
            **work(model.encoder.config, real(batch), asked["weights"].sum()),
        }

    def closing_words(self, model: Any, workdir: Any) -> str:
        """What to show when the run is over."""
        return "\na left-to-right model, to compare its scores with others"

    def next_words(self, workdir: Any) -> str:
        """That nothing is to be typed next."""
        return ""


def leftwards(attention_mask: jax.Array) -> jax.Array:
    """`[B, L]` -> `[B, L, L]`: 1 where a token sees one of its sequence at its left."""
    length = attention_mask.shape[1]
    left = jnp.tril(jnp.ones((length, length), bool))
    return (layers.visible(attention_mask)[:, 0] & left[None]).astype(jnp.int32)


def following(batch: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
    """Every token as one to predict, but those that begin a sequence."""
    mask = batch["attention_mask"]
    begins = jnp.pad(mask[:, :-1], ((0, 0), (1, 0))) != mask
    length = mask.shape[1]
    return {
        "positions": jnp.broadcast_to(jnp.arange(length)[None], mask.shape),
        "labels": batch["input_ids"],
        "weights": ((mask > 0) & ~begins).astype(jnp.float32),
    }


@dataclasses.dataclass
class LeftToRightConfig(PretrainingConfig):
    """A left-to-right language model on raw text, see the module.

    >>> leftwards(jnp.array([[1, 1, 2, 0]]))[0, :3]  # two sequences in a row
    Array([[1, 0, 0, 0],
           [1, 1, 0, 0],
           [0, 0, 1, 0]], dtype=int32)
    """

    run: ClassVar[type] = LeftToRightTask
