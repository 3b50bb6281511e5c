r"""RoBERTa on GLUE, with the numbers of its authors: a set for each task.

    python train.py --config=configs/glue_roberta.py:mrpc \
        --config.task.train=train.tsv --config.task.dev=dev.tsv \
        --config.init_from=DIR --workdir=runs/mrpc

Liu et al., 2019, section 5.1 and table 10, and README.glue.md of fairseq's
examples/roberta: 10 epochs, of which the best on dev counts, 6 % of warm-up (a quarter
for QQP, in the README) and a weight decay of 0.1; gradients are not clipped. Scores on
dev (its README.md; accuracy, Matthews for CoLA; for large, medians of five runs):

           MNLI-m  QNLI   QQP   RTE  SST-2  MRPC  CoLA  STS-B
    base     87.6  92.8  91.9  78.7   94.8  90.2  63.6   91.2
    large    90.2  94.7  92.2  86.6   96.4  90.9  68.0   92.4

Two things differ: fairseq applies weight decay to biases and norms too, and its batch
has fewer rows if they have more than 4,400 tokens.
"""

from dataclasses import replace
from typing import NamedTuple

from bert_jax.tasks import ClassificationConfig
from bert_jax.training import OptimizerConfig, TrainConfig
from configs import glue


class Numbers(NamedTuple):
    """The settings of one task."""

    learning_rate: float
    batch_size: int
    warmup: float = 0.06


TASKS = {
    "mnli": Numbers(1e-5, 32),
    "qnli": Numbers(1e-5, 32),
    "qqp": Numbers(1e-5, 32, 0.25),
    "rte": Numbers(2e-5, 16),
    "sst2": Numbers(1e-5, 32),
    "mrpc": Numbers(1e-5, 16),
    "cola": Numbers(1e-5, 16),
    "stsb": Numbers(2e-5, 16),
}


def get_config(task: str = "sst2") -> TrainConfig:
    """The recipe for one of `TASKS`; the encoder is that of `init_from`."""
    if task not in TASKS:
        raise ValueError(
            f"{task!r} has no published numbers; choose one of {', '.join(TASKS)}"
        )
    numbers = TASKS[task]
    return replace(
        glue.get_config(),
        task=ClassificationConfig(
            name=task, max_length=512, epochs=10.0, warmup=numbers.warmup
        ),
        optimizer=OptimizerConfig(
            name="adamw",
            learning_rate=numbers.learning_rate,
            schedule="linear",
            weight_decay=0.1,
            b2=0.98,
            clip_norm=0.0,
        ),
        batch_size=numbers.batch_size,
    )
