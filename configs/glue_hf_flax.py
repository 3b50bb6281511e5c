r"""GLUE as the Flax examples of Hugging Face transformers fine-tune for it.

    python train.py --config=configs/glue_hf_flax.py:mrpc --config.seeds=5 \
        --config.task.train=train.tsv --config.task.dev=dev.tsv \
        --config.init_from=DIR --workdir=runs/mrpc

`run_flax_glue.py` and its README: 3 epochs, 5 for the small MRPC and WNLI, a learning
rate of 2e-5 that falls linearly from the first step, AdamW without weight decay and
without clipping. Scores of bert-base-cased on dev, means of five seeds (F1 and accuracy
for MRPC, accuracy and F1 for QQP, Pearson and Spearman for STS-B, Matthews for CoLA):

    CoLA 59.04  SST-2 92.23  MRPC 88.97/84.36  STS-B 88.94/88.63  QQP 90.76/87.51
    MNLI-m 83.80  QNLI 90.82  RTE 64.76  WNLI 37.01

Their standard deviations, in the same order:

    1.06  0.57  0.72/1.09  0.07/0.07  0.05/0.06  0.16  0.17  1.04  6.83
"""

from dataclasses import replace

from bert_jax.tasks import ClassificationConfig
from bert_jax.training import OptimizerConfig, TrainConfig
from configs import glue

# 3 for all other tasks.
EPOCHS = {"mrpc": 5.0, "wnli": 5.0}


def get_config(task: str = "sst2") -> TrainConfig:
    """The recipe for one of GLUE's tasks; the encoder is that of `init_from`."""
    return replace(
        glue.get_config(),
        task=ClassificationConfig(name=task, epochs=EPOCHS.get(task, 3.0), warmup=0.0),
        optimizer=OptimizerConfig(
            name="adamw",
            learning_rate=2e-5,
            schedule="linear",
            weight_decay=0.0,
            clip_norm=0.0,
        ),
        export="last",
    )
