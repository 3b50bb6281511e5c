"""Permutation language modelling on raw text (Yang et al., 2019, section 2)."""

import dataclasses
from typing import ClassVar

from flax import linen as nn

from bert_jax import pretrained
from bert_jax.data.records import RowConfig
from bert_jax.models.heads import PermutationLM
from bert_jax.objectives.losses import Totals
from bert_jax.objectives.masking import Masking
from bert_jax.objectives.permutation import Permutation, permutation_lm_loss
from bert_jax.tasks import pretraining
from bert_jax.tasks.pretraining import PretrainingConfig


@dataclasses.dataclass(frozen=True)
class PermutationTask(pretraining.PretrainingTask):
    """Permutation language modelling with its rows at hand."""

    parts = ("encoder", "mlm")
    loss_weights = {"mlm_loss": 1.0}
    asks_pairs = False

    def build(self, encoder: nn.Module) -> PermutationLM:
        """The head on `encoder`, which must have two streams."""
        remedy = "set encoder to an XLNetConfig"
        pretraining.demand_head(PermutationLM, encoder.config, remedy)
        return pretrained.new_head(PermutationLM, encoder)

    def totals(self, model, params, batch, key) -> Totals:
        """See `permutation_lm_loss`; evaluation uses the same order every time."""
        order_key, _, vocabulary = self.hiding(key is None)
        return permutation_lm_loss(
            model,
            params,
            batch,
            key,
            order_key=order_key,
            permutation=self.settings.permutation,
            vocabulary=vocabulary,
        )


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

    task_class: ClassVar[type] = PermutationTask

    def check(self) -> None:
        """Raises ValueError for a field that cannot be right."""
        super().check()
        self.permutation.validate()
        if self.masking != Masking() or self.eval_masking:
            raise ValueError(
                "task.masking says nothing here, where no token becomes [MASK]; set "
                "task.permutation"
            )
