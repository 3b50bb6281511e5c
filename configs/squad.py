r"""Fine-tuning on SQuAD 1.1 or 2.0, or on your own questions in the same format.

    python train.py --config=configs/squad.py --config.task.train=train-v1.1.json \
        --config.task.dev=dev-v1.1.json --config.init_from=DIR --workdir=runs/squad

If some questions have no answer, as in SQuAD 2.0, the model learns "no answer" too, and
the threshold for it is chosen on dev.

The recipe of the BERT paper (Devlin et al., 2018, sections 4.2 and 4.3): 3 epochs,
batch 32 and a learning rate of 5e-5 for SQuAD 1.1; for 2.0 2 epochs and batch 48
(--config.task.epochs=2 --config.batch_size=48). Windows of 384 tokens every 128, and
questions of 64, are those of google-research/bert's run_squad.py. Its scores on dev,
exact match / F1 (tables 2 and 3):

    SQuAD 1.1  BERT-base 80.8/88.5  BERT-large 84.1/90.9
    SQuAD 2.0  BERT-large 78.7/81.9

bert-base-uncased on SQuAD 1.1 (README of the Flax examples of Hugging Face
transformers): 81.34/88.62.
"""

from dataclasses import replace

from bert_jax.tasks import AnsweringConfig
from bert_jax.training import OptimizerConfig, TrainConfig
from configs import glue


def get_config() -> TrainConfig:
    """The recipe; the encoder is that of `init_from`."""
    return replace(
        glue.get_config(),
        task=AnsweringConfig(),
        optimizer=OptimizerConfig(learning_rate=5e-5),
    )
