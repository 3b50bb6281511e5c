r"""BERT-large, the first phase: 900,000 of a million steps, on rows of 128 tokens.

    bert-jax prepare TEXT --max-length 128 --dupe-factor 10 --held-out 0.001 \
        --out rows128
    python train.py --config=configs/bert_large_phase1.py \
        --config.task.prepared=rows128 --workdir=runs/large128

Recipe, rows and differences from the paper are those of `bert_base_phase1.py` (Devlin
et al., 2018, appendix A.2). After both phases the paper's model has
82.1 on the GLUE test sets (table 1), an F1 of 90.9 on SQuAD 1.1 (table 2) and a masked
LM perplexity of 3.23, so `mlm_loss` 1.17 (table 6).

If memory runs out: `--config.accumulation=2`, or more; `--config.layout=fsdp`.
"""

from dataclasses import replace

from bert_jax.models import sized
from bert_jax.training import TrainConfig
from configs import bert_base_phase1


def get_config() -> TrainConfig:
    """The recipe of BERT-base with a larger encoder."""
    return replace(bert_base_phase1.get_config(), encoder=sized(24, 1024))
