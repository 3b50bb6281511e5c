"""A left-to-right language model on the rows of pre-training, to compare with.

BERT's ablation "LTR" (Devlin et al., 2018, section 5.1): a token sees what stands to
its left alone, and each token is predicted from there. What is saved has the names of a
BERT, but means something only under such a mask.
"""

import dataclasses
from typing import Any, ClassVar

from flax import linen as nn

from bert_jax.objectives.left_to_right import left_to_right_loss
from bert_jax.objectives.losses import Totals
from bert_jax.tasks import pretraining
from bert_jax.tasks.pretraining import PretrainingConfig


@dataclasses.dataclass(frozen=True)
class LeftToRightTask(pretraining.PretrainingTask):
    """Left to right with its rows at hand."""

    @property
    def asks_pairs(self) -> bool:
        """Never: [CLS] sees nothing."""
        return False

    def totals(self, model: nn.Module, params, batch, key) -> Totals:
        """See `left_to_right_loss`."""
        mask_key, masking, vocabulary = self.hiding(key is None)
        return left_to_right_loss(
            model,
            params,
            batch,
            key,
            mask_key=mask_key,
            masking=masking,
            vocabulary=vocabulary,
        )

    def demo(self, model: Any, workdir: Any) -> str:
        """The purpose of such a model."""
        return "\na left-to-right model, to compare its scores with others"

    def next_steps(self, workdir: Any) -> str:
        """No command to try."""
        return ""


@dataclasses.dataclass
class LeftToRightConfig(PretrainingConfig):
    """A left-to-right language model on raw text, see the module."""

    task_class: ClassVar[type] = LeftToRightTask
