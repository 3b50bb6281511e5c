r"""BERT-large, the second phase: the last 100,000 steps, on rows of 512 tokens.

    bert-jax prepare TEXT --length 512 --tokenizer rows128/tokenizer \
        --dupe-factor 10 --held-out 0.001 --out rows512
    python train.py --config=configs/bert_large_phase2.py \
        --config.init_from=runs/large128/model \
        --config.task.prepared=rows512 --workdir=runs/large512

It starts from the model of `bert_large_phase1.py`, which has the source and the scores,
and needs its vocabulary. The learning rate is explained in `bert_base_phase2.py`.
76 predictions a row are those of MLPerf, whose BERT-large, by another optimizer and on
its own rows, is done at a masked LM accuracy of 0.712 (later 0.720).

Where memory runs out: `--config.accumulation=2`, or more; `--config.layout=fsdp`.

On TPUs a fused kernel computes attention, with a tenth of its weights dropped, as here.
On GPUs there is one only where none are: with
`--config.encoder.attention_probs_dropout_prob=0`, which is not the paper's recipe.
Otherwise the scores of whole rows lie in memory there.
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
            recipe=RowConfig(sequence_length=512, dupe_factor=10, held_out=0.001),
            masking=Masking(max_predictions=76),
        ),
        optimizer=OptimizerConfig(
            name="bert_adam",
            learning_rate=1e-5,
            schedule="google",
            warmup_steps=1_000,
        ),
        batch_size=256,
        num_steps=100_000,
        log_every=100,
        eval_every=10_000,
        checkpoint_every=1_000,
    )
