r"""ELECTRA on GLUE, with the numbers of its authors.

    python train.py --config=configs/glue_electra.py:mrpc \
        --config.task.train=train.tsv --config.task.dev=dev.tsv \
        --config.init_from=DIR --workdir=runs/mrpc

Clark et al., 2020, and configure_finetuning.py of google-research/electra: BERT's own
Adam, a learning rate that shrinks by 0.8 with each layer below the head, a tenth of
warm-up, 3 epochs, 10 for RTE and STS-B. These are the numbers of small and base; for
large, set `--config.optimizer.learning_rate=5e-5 --config.optimizer.layer_decay=0.9`.
The README's medians over many seeds on dev (accuracy, Matthews for CoLA, Spearman for
STS-B):

           CoLA  SST-2  MRPC  STS-B   QQP  MNLI-m  QNLI   RTE
    small  57.0   91.2  88.0   87.5  89.0    81.3  88.4  66.7
    base   67.7   95.1  89.5   91.2  91.5    88.8  93.2  82.7
    large  69.1   96.9  90.8   92.6  92.4    90.9  95.0  88.0

Four things differ. Their code multiplies the warm-up by the decay, so that its last
rate is a tenth lower; it trains MRPC and STS-B on both orders of each pair; it scales
the labels of STS-B to [0, 1]; and its head has no dense layer before the last, while
this one has it, as in transformers.
"""

from dataclasses import replace

from bert_jax.tasks import ClassificationConfig
from bert_jax.training import OptimizerConfig, TrainConfig
from configs import glue

# 3 for all other tasks.
EPOCHS = {"rte": 10.0, "stsb": 10.0}


def get_config(task: str = "sst2") -> TrainConfig:
    """The recipe for one of GLUE's tasks; the encoder is that of `init_from`."""
    return replace(
        glue.get_config(),
        task=ClassificationConfig(name=task, epochs=EPOCHS.get(task, 3.0)),
        optimizer=OptimizerConfig(
            name="bert_adam", learning_rate=1e-4, schedule="google", layer_decay=0.8
        ),
        export="last",
    )
