r"""Fine-tuning on GLUE, or on any labelled file of yours.

    python train.py --config=configs/glue.py --config.task.name=sst2 \
        --config.task.train=train.tsv --config.task.dev=dev.tsv \
        --config.init_from=DIR --workdir=runs/sst2

Without `task.name` the files say what they hold: .tsv, .csv or .jsonl, with or without
a header; `task.text`, `task.pair` and `task.label` name columns that are not found.

The recipe of the BERT paper (Devlin et al., 2018, appendix A.3): 3 epochs, batch 32, a
learning rate of 5e-5, 4e-5, 3e-5 or 2e-5 chosen on dev, a tenth of warm-up. Its scores
of BERT-base on the GLUE test sets (table 1; F1 for MRPC and QQP, Spearman for STS-B,
Matthews for CoLA, accuracy for the others):

    MNLI-m 84.6  QQP 71.2  QNLI 90.5  SST-2 93.5  CoLA 52.1  STS-B 85.8  MRPC 88.9
    RTE 66.4

On dev, means of five seeds of bert-base-cased at 2e-5 (README of the Flax examples of
Hugging Face transformers; 5 epochs for MRPC and WNLI):

    CoLA 59.04  SST-2 92.23  MRPC 88.97/84.36  STS-B 88.94/88.63  QQP 90.76/87.51
    MNLI-m 83.80  QNLI 90.82  RTE 64.76  WNLI 37.01
"""

from bert_jax.tasks.classification import Classification
from bert_jax.training.config import TrainConfig
from bert_jax.training.optimizers import OptimizerConfig


def get_config() -> TrainConfig:
    """The recipe; the encoder is that of `init_from`."""
    return TrainConfig(
        encoder=None,
        task=Classification(),
        optimizer=OptimizerConfig(name="adamw", learning_rate=5e-5, schedule="linear"),
        batch_size=32,
        keep=1,
        export="best",
    )
