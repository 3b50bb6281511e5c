r"""BERT-large, the second phase: the last 100,000 steps, on rows of 512 tokens.

    bert-jax prepare TEXT --max-length 512 --tokenizer rows128/tokenizer \
        --dupe-factor 10 --held-out 0.001 --out rows512
    python train.py --config=configs/bert_large_phase2.py \
        --config.init_from=runs/large128/model \
        --config.task.prepared=rows512 --workdir=runs/large512

It starts from the model of `bert_large_phase1.py`, which names the paper's scores, and
needs its vocabulary. `bert_base_phase2.py` explains the learning rate, and attention on
GPUs. 76 predictions a row are those of MLPerf, whose BERT-large, with another optimizer
and other rows, is trained to a masked LM accuracy of 0.712 (later 0.720).

If memory runs out: `--config.accumulation=2`, or more; `--config.layout=fsdp`.
"""

from dataclasses import replace

from bert_jax.models import sized
from bert_jax.training import TrainConfig
from configs import bert_base_phase2


def get_config() -> TrainConfig:
    """The recipe of BERT-base with a larger encoder."""
    return replace(bert_base_phase2.get_config(), encoder=sized(24, 1024))
