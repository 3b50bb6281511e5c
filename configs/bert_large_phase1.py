r"""BERT-large, the first phase: 900,000 of a million steps, on rows of 128 tokens.

    bert-jax prepare TEXT --length 128 --dupe-factor 10 --held-out 0.001 --out rows128
    python train.py --config=configs/bert_large_phase1.py \
        --config.task.prepared=rows128 --workdir=runs/large128

The recipe is that of `bert_base_phase1.py` (Devlin et al., 2018, appendix A.2), and so
are the rows and what differs from the paper. After both phases the paper's model has
82.1 on the GLUE test sets (table 1), an F1 of 90.9 on SQuAD 1.1 (table 2) and a masked
LM perplexity of 3.23, so `mlm_loss` 1.17 (table 6).

Where memory runs out: `--config.accumulation=2`, or more; `--config.layout=fsdp`.
"""

from bert_jax.data.records import RowConfig
from bert_jax.models import sized
from bert_jax.objectives.masking import Masking
from bert_jax.tasks.pretraining import PretrainingConfig
from bert_jax.training.config import TrainConfig
from bert_jax.training.optimizers import OptimizerConfig


def get_config() -> TrainConfig:
    """The recipe."""
    return TrainConfig(
        encoder=sized(24, 1024),
        dtype="bfloat16",
        task=PretrainingConfig(
            recipe=RowConfig(sequence_length=128, dupe_factor=10, held_out=0.001),
            masking=Masking(max_predictions=20),
        ),
        optimizer=OptimizerConfig(
            name="bert_adam",
            learning_rate=1e-4,
            schedule="google",
            warmup_steps=10_000,
        ),
        batch_size=256,
        num_steps=900_000,
        log_every=100,
        eval_every=10_000,
        checkpoint_every=1_000,
    )
