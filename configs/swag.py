r"""Multiple choice: the right ending of four, as in SWAG, or your own choices.

    python train.py --config=configs/swag.py --config.task.train=train.csv \
        --config.task.dev=val.csv --config.init_from=DIR --workdir=runs/swag

The files are SWAG's own (Zellers et al., 2018), or any with a column of contexts, one
for each choice and one for the label: see docs/fine-tuning.md.

The recipe of the BERT paper (Devlin et al., 2018, section 4.4): 3 epochs, batch 16, a
learning rate of 2e-5; the warm-up is that of its other tasks. Its accuracies (table 4):

    BERT-base   dev 81.6
    BERT-large  dev 86.6  test 86.3
"""

from dataclasses import replace

from bert_jax.tasks import ChoiceConfig
from bert_jax.training import TrainConfig
from configs import glue


def get_config() -> TrainConfig:
    """The recipe; the encoder is that of `init_from`."""
    base = glue.get_config()
    optimizer = replace(base.optimizer, learning_rate=2e-5)
    return replace(base, task=ChoiceConfig(), optimizer=optimizer, batch_size=16)
