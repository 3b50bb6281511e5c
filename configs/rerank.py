r"""A reranker from scored pairs, queries with negatives, or lists of documents.

    python train.py --config=configs/rerank.py --config.task.train=train.jsonl \
        --config.task.dev=dev.jsonl --config.init_from=DIR --workdir=runs/reranker

The columns of the files decide what is learnt: see docs/embeddings.md.
"""

from dataclasses import replace

from bert_jax.tasks import RerankingConfig
from bert_jax.training import TrainConfig
from configs import glue


def get_config() -> TrainConfig:
    """The recipe; the encoder is that of `init_from`."""
    return replace(glue.get_config(), task=RerankingConfig())
