r"""Late interaction (ColBERT) from pairs or triplets of a query and documents.

    python train.py --config=configs/colbert.py --config.task.train=train.jsonl \
        --config.task.dev=dev.jsonl --config.init_from=DIR --workdir=runs/late

Each token has a vector of its own: see docs/embeddings.md.
"""

from dataclasses import replace

from bert_jax.tasks import LateInteractionConfig
from bert_jax.training import TrainConfig
from configs import glue


def get_config() -> TrainConfig:
    """The recipe; the encoder is that of `init_from`."""
    return replace(glue.get_config(), task=LateInteractionConfig())
