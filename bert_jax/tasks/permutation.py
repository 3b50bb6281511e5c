"""Permutation language modelling on raw text (Yang et al., 2019, section 2)."""

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import linen as nn

from bert_jax import pretrained
from bert_jax.data.row_config import RowConfig
from bert_jax.models.heads import PermutationLM
from bert_jax.objectives.masked_lm import (
    Totals,
    applied,
    real,
    token_totals,
    valid_rows,
    work,
)
from bert_jax.objectives.masking import Masking
from bert_jax.objectives.permutation import Permutation, permute_tokens
from bert_jax.tasks import pretraining
from bert_jax.tasks.pretraining import PretrainingConfig


@dataclasses.dataclass(frozen=True)
class PermutationTask(pretraining.PretrainingTask):
    """Permutation language modelling with its rows at hand."""

    parts = ("encoder", "mlm")
    objective = {"mlm_loss": 1.0}
    asks_pairs = False

    def model(self, encoder: nn.Module) -> PermutationLM:
        """The head on `encoder`, which must have two streams."""
        remedy = "set encoder to an XLNetConfig"
        pretraining.demand_head(PermutationLM, encoder.config, remedy)
        return pretrained.new_head(PermutationLM, encoder)

    def loss(self, model, params, batch, key) -> Totals:
        """mlm_loss and mlm_accuracy of what is predicted, tokens and flops.

        Evaluation always predicts the same tokens in the same order.
        """
        drawn = self.draw(batch, key)
        asked = {name: drawn[name] for name in ("positions", "perm_mask")}
        logits = applied(model, params, batch, key, batch["input_ids"], **asked)
        config, predictions = model.encoder.config, drawn["weights"].sum()
        totals = work(config, real(batch), predictions)
        flops, count = totals["flops"]
        return {
            **token_totals(logits, drawn, counts_labels=key is None),
            **totals,
            "flops": (flops + query_flops(config, predictions), count),
        }

    def draw(self, batch, key) -> dict[str, jax.Array]:
        """See `permute_tokens`; a `key` of None means evaluation."""
        inputs = batch["example"], batch["input_ids"], batch["attention_mask"]
        settings = self.settings.permutation, self._vocabulary()
        drawn = permute_tokens(self.hiding(key is None)[0], *inputs, *settings)
        return drawn | {"weights": drawn["weights"] * valid_rows(batch)[:, None]}


def query_flops(config: Any, predictions: Any) -> Any:
    """What queries cost in the layers beside the content, whose keys they share."""
    D, F = float(config.hidden_size), float(config.intermediate_size)
    block = 2 * D * D + config.mlp_kernels * D * F
    return jnp.asarray(6.0 * config.num_hidden_layers * block * predictions)


@dataclasses.dataclass
class PermutationConfig(PretrainingConfig):
    """Permutation language modelling on raw text; nothing is asked about pairs.

    Attributes:
      permutation: what is predicted, and in which order.
      vocabulary, lowercase, recipe: XLNet's: SentencePiece with its special tokens,
        which keeps capitals, and rows whose sequences end with [CLS].

    >>> PermutationConfig(masking=Masking(rate=0.3)).check()
    Traceback (most recent call last):
    ValueError: task.masking says nothing here, where no token becomes [MASK]; ...
    """

    vocabulary: str = "xlnet"
    lowercase: bool = False
    recipe: RowConfig = dataclasses.field(
        default_factory=lambda: RowConfig(cls_last=True)
    )
    permutation: Permutation = dataclasses.field(default_factory=Permutation)

    run: ClassVar[type] = PermutationTask

    def check(self) -> None:
        """Raises ValueError for a field that cannot be right."""
        super().check()
        self.permutation.validate()
        if self.masking != Masking() or self.eval_masking:
            raise ValueError(
                "task.masking says nothing here, where no token becomes [MASK]; set "
                "task.permutation"
            )
