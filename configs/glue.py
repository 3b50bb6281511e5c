r"""Fine-tuning on GLUE, or on any labelled file of yours.

    python train.py --config=configs/glue.py --config.task.name=sst2 \
        --config.task.train=train.tsv --config.task.dev=dev.tsv \
        --config.init_from=DIR --workdir=runs/sst2

Without `task.name` the files say what they hold: .tsv, .csv or .jsonl, with or without
a header; `task.text`, `task.pair` and `task.label` name columns that are not found.

The recipe of the BERT paper (Devlin et al., 2018, section 4.1): 3 epochs, batch 32, a
learning rate of 5e-5, 4e-5, 3e-5 or 2e-5 chosen on dev for each task, a tenth of
warm-up. Its scores on the GLUE test sets (table 1; F1 for QQP and MRPC, Spearman for
STS-B, Matthews for CoLA, accuracy for the others; those of large are of the best of
several starts on dev):

           MNLI-m/mm   QQP  QNLI  SST-2  CoLA  STS-B  MRPC   RTE  mean
    base   84.6/83.4  71.2  90.5   93.5  52.1   85.8  88.9  66.4  79.6
    large  86.7/85.9  72.1  92.7   94.9  60.5   86.5  89.3  70.1  82.1

Adam corrects its bias here, without which some runs on little data fail (Zhang et al.,
2021, section 4), and the rate falls from the end of the warm-up on. The paper's own is
`--config.optimizer.name=bert_adam --config.optimizer.schedule=google`. Scores on dev,
of a recipe that differs little, are in `glue_hf_flax.py`.
"""

from bert_jax.tasks.classification import ClassificationConfig
from bert_jax.training.config import TrainConfig
from bert_jax.training.optimizers import OptimizerConfig


def get_config() -> TrainConfig:
    """The recipe; the encoder is that of `init_from`."""
    return TrainConfig(
        encoder=None,
        task=ClassificationConfig(),
        optimizer=OptimizerConfig(name="adamw", learning_rate=5e-5, schedule="linear"),
        batch_size=32,
        keep=1,
        export="best",
    )
