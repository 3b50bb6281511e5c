"""Permutation language modelling on raw text (XLNet, Yang et al., 2019)."""

import dataclasses
from typing import ClassVar

import jax
from flax import linen as nn

from bert_jax import pretrained
from bert_jax.data.records import RowConfig
from bert_jax.models.heads import PermutationLM
from bert_jax.objectives.losses import Batch, Params, Totals
from bert_jax.objectives.masking import Masking
from bert_jax.objectives.permutation import Permutation, permutation_lm_loss
from bert_jax.tasks import pretraining
from bert_jax.tasks.pretraining import PretrainingConfig


@dataclasses.dataclass(frozen=True)
class PermutationTask(pretraining.PretrainingTask):
    """Permutation language modelling on prepared rows."""

    config: "PermutationConfig"

    pretrained_parts = ("encoder", "mlm")
    loss_weights = {"mlm_loss": 1.0}
    predicts_pairs = False

    def build(self, encoder: nn.Module) -> PermutationLM:
        """The head on `encoder`, which must be an XLNet."""
        remedy = "set encoder to an XLNetConfig"
        pretraining.check_head(PermutationLM, encoder.config, remedy)
        return pretrained.new_head(PermutationLM, encoder)

    def totals(
        self,
        model: PermutationLM,
        params: Params,
        batch: Batch,
        key: jax.Array | None,
    ) -> Totals:
        """See `permutation_lm_loss`; evaluation uses the same order every time."""
        masks = self.masks(key is None)
        return permutation_lm_loss(
            model,
            params,
            batch,
            key,
            order_key=masks["mask_key"],
            permutation=self.config.permutation,
            vocabulary=masks["vocabulary"],
        )


@dataclasses.dataclass
class PermutationConfig(PretrainingConfig):
    """Permutation language modelling on raw text, without prediction of pairs.

    Attributes:
      permutation: the settings of predicted tokens and their order.
      vocabulary, lowercase, recipe: those of XLNet: a cased SentencePiece vocabulary
        with its special tokens, and sequences that end with [CLS].

    >>> PermutationConfig(masking=Masking(rate=0.3)).check()
    Traceback (most recent call last):
    ValueError: task.masking has no effect, because no token becomes [MASK]; ...
    """

    vocabulary: str = "xlnet"
    lowercase: bool = False
    recipe: RowConfig = dataclasses.field(
        default_factory=lambda: RowConfig(cls_last=True)
    )
    permutation: Permutation = dataclasses.field(default_factory=Permutation)

    task_class: ClassVar[type[pretraining.PretrainingTask]] = PermutationTask

    def check(self) -> None:
        """Raises ValueError for a field that cannot be right."""
        super().check()
        self.permutation.validate()
        if self.masking != Masking() or self.eval_masking:
            raise ValueError(
                "task.masking has no effect, because no token becomes [MASK]; set "
                "task.permutation"
            )
