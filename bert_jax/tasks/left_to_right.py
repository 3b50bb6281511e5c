"""A left-to-right language model on prepared rows, for comparison with masked LM.

BERT's ablation "LTR" (Devlin et al., 2018, section 5.1): each token is predicted from
the tokens before it. The saved model has the parameters of a BERT, but its outputs are
meaningful only with a causal mask.
"""

import dataclasses
from pathlib import Path
from typing import ClassVar

import jax

from bert_jax.inference.model import Model
from bert_jax.models.heads import MaskedLM
from bert_jax.objectives.left_to_right import left_to_right_loss
from bert_jax.objectives.losses import Batch, Params, Totals
from bert_jax.tasks import pretraining
from bert_jax.tasks.pretraining import PretrainingConfig


@dataclasses.dataclass(frozen=True)
class LeftToRightTask(pretraining.PretrainingTask):
    """Left-to-right language modelling on prepared rows."""

    @property
    def predicts_pairs(self) -> bool:
        """False: [CLS] comes first and sees no other token."""
        return False

    def totals(
        self, model: MaskedLM, params: Params, batch: Batch, key: jax.Array | None
    ) -> Totals:
        """See `left_to_right_loss`."""
        return left_to_right_loss(model, params, batch, key, **self.masks(key is None))

    def demo(self, model: Model, workdir: Path) -> str:
        """The purpose of the model."""
        return "\na left-to-right model, to compare its scores with others"

    def next_steps(self, workdir: Path, shell: bool) -> str:
        """No command, because the model needs a causal mask."""
        return ""


@dataclasses.dataclass
class LeftToRightConfig(PretrainingConfig):
    """A left-to-right language model on raw text, see the module."""

    task_class: ClassVar[type[pretraining.PretrainingTask]] = LeftToRightTask
