"""A small BERT from the documentation installed with Python, in minutes on a laptop.

    python train.py

It needs no network and no data: the text is the language reference and the docstrings
of Python, NumPy, SciPy and JAX, 5 MB of prose. Rows are short, the vocabulary is small,
and the initial weights are larger than BERT's 0.02, which is meant for 768 dimensions.
So both objectives are learnt within a thousand steps. Dropout is off, because no row is
read twice.
"""

from bert_jax.data import RowConfig
from bert_jax.models import BertConfig
from bert_jax.tasks import PretrainingConfig
from bert_jax.training import OptimizerConfig, TrainConfig


def get_config() -> TrainConfig:
    """The recipe."""
    return TrainConfig(
        encoder=BertConfig(
            vocab_size=4096,
            hidden_size=128,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=512,
            max_position_embeddings=64,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            initializer_range=0.05,
        ),
        task=PretrainingConfig(recipe=RowConfig(sequence_length=64, dupe_factor=3)),
        optimizer=OptimizerConfig(
            name="adamw",
            learning_rate=2e-3,
            schedule="linear",
            warmup_steps=100,
            b2=0.98,
        ),
        batch_size=64,
        num_steps=800,
        log_every=20,
        eval_every=400,
        checkpoint_every=400,
    )
