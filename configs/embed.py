r"""Sentence vectors from pairs, triplets, scored pairs or labelled texts.

    python train.py --config=configs/embed.py --config.task.train=train.csv \
        --config.task.dev=dev.csv --config.init_from=DIR --workdir=runs/vectors

The columns of the files decide what is learnt: see docs/embeddings.md.
"""

from dataclasses import replace

from bert_jax.tasks import EmbeddingConfig
from bert_jax.training import TrainConfig
from configs import glue


def get_config() -> TrainConfig:
    """The recipe; the encoder is that of `init_from`."""
    return replace(glue.get_config(), task=EmbeddingConfig())
