r"""Fine-tuning on GLUE, or on any labelled file of yours.

    python train.py --config=configs/glue.py --config.task.name=sst2 \
        --config.task.train=train.tsv --config.task.dev=dev.tsv \
        --config.init_from=DIR --workdir=runs/sst2

Without `task.name` any labelled .tsv, .csv or .jsonl file will do, with or without a
header; `task.text`, `task.pair` and `task.label` name columns with unusual names.

The recipe of the BERT paper (Devlin et al., 2018, section 4.1): 3 epochs, batch 32, a
learning rate of 5e-5, 4e-5, 3e-5 or 2e-5 chosen on dev for each task, a tenth of
warm-up. Its scores on the GLUE test sets (table 1; F1 for QQP and MRPC, Spearman for
STS-B, Matthews for CoLA, accuracy for the others; for large, the best on dev of several
random restarts):

           MNLI-m/mm   QQP  QNLI  SST-2  CoLA  STS-B  MRPC   RTE  mean
    base   84.6/83.4  71.2  90.5   93.5  52.1   85.8  88.9  66.4  79.6
    large  86.7/85.9  72.1  92.7   94.9  60.5   86.5  89.3  70.1  82.1

Two things differ from the paper: Adam corrects its bias, without which some runs on
little data fail (Zhang et al., 2021, section 4), and the rate falls linearly from the
end of the warm-up. `--config.optimizer.name=bert_adam
--config.optimizer.schedule=google` is the paper's own. `glue_hf_flax.py` has scores on
dev of a similar recipe.
"""

from bert_jax.tasks import ClassificationConfig
from bert_jax.training import OptimizerConfig, TrainConfig


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
