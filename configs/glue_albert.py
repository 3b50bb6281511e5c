r"""ALBERT on GLUE, with the numbers of its authors: a set for each task.

    python train.py --config=configs/glue_albert.py:mrpc \
        --config.task.train=train.tsv --config.task.dev=dev.tsv \
        --config.init_from=DIR --workdir=runs/mrpc

Lan et al., 2020, table 14, and run_glue.sh of google-research/albert: a number of
steps instead of epochs, BERT's own Adam and schedule, and the checkpoint that is best
on dev. Scores on dev (its README; accuracy, Matthews for CoLA), in the first line of
version 1 after 1.5 million steps:

                 MNLI-m  QNLI   QQP   RTE  SST-2  MRPC  CoLA  STS-B
    xxlarge        90.8  95.3  92.2  89.2   96.9  90.9  71.4   93.0
    xxlarge v2     90.6                     96.8
    xlarge v2      87.9                     95.4
    large v2       86.5                     94.9
    base v2        84.6                     92.9

If dev is large, as for QQP, their frequent evaluations take as long as the training;
`--config.eval_every=1000 --config.checkpoint_every=1000` makes them rarer.
"""

from dataclasses import replace
from typing import NamedTuple

from bert_jax.tasks import ClassificationConfig
from bert_jax.training import OptimizerConfig, TrainConfig
from configs import glue


class Numbers(NamedTuple):
    """The settings of one task, in the order of run_glue.sh."""

    warmup_steps: int
    learning_rate: float
    num_steps: int
    checkpoint_every: int
    batch_size: int


TASKS = {
    "sst2": Numbers(1256, 1e-5, 20935, 100, 32),
    "mnli": Numbers(1000, 3e-5, 10000, 100, 128),
    "cola": Numbers(320, 1e-5, 5336, 100, 16),
    "qnli": Numbers(1986, 1e-5, 33112, 200, 32),
    "qqp": Numbers(1000, 5e-5, 14000, 100, 128),
    "rte": Numbers(200, 3e-5, 800, 100, 32),
    "stsb": Numbers(214, 2e-5, 3598, 100, 16),
    "mrpc": Numbers(200, 2e-5, 800, 100, 32),
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
        task=ClassificationConfig(name=task, max_length=512, epochs=0.0),
        optimizer=OptimizerConfig(
            name="bert_adam",
            learning_rate=numbers.learning_rate,
            schedule="google",
            warmup_steps=numbers.warmup_steps,
        ),
        batch_size=numbers.batch_size,
        num_steps=numbers.num_steps,
        eval_every=numbers.checkpoint_every,
        checkpoint_every=numbers.checkpoint_every,
    )
