r"""The right ending of four, as in SWAG, or the right choice in any file of yours.

    python train.py --config=configs/swag.py --config.task.train=train.csv \
        --config.task.dev=val.csv --config.init_from=DIR --workdir=runs/swag

The files are SWAG's own (Zellers et al., 2018), or any with a column of contexts, one
for each choice and one for the label: see docs/fine-tuning.md.

The recipe of the BERT paper (Devlin et al., 2018, section 4.4): 3 epochs, batch 16, a
learning rate of 2e-5; the warm-up is that of its other tasks. Its accuracies (table 4):

    BERT-base   dev 81.6
    BERT-large  dev 86.6  test 86.3
"""

from bert_jax.tasks.choices import ChoiceConfig
from bert_jax.training.config import TrainConfig
from bert_jax.training.optimizers import OptimizerConfig


def get_config() -> TrainConfig:
    """The recipe; the encoder is that of `init_from`."""
    return TrainConfig(
        encoder=None,
        task=ChoiceConfig(epochs=3.0),
        optimizer=OptimizerConfig(name="adamw", learning_rate=2e-5, schedule="linear"),
        batch_size=16,
        keep=1,
        export="best",
    )
