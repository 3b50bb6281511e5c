"""A small BERT from the documentation installed with Python, in minutes on a laptop.

    python train.py

It needs no network and no data: the text is the language reference and the docstrings
of Python, NumPy, SciPy and JAX.
"""

from bert_jax.data.recipe import Recipe
from bert_jax.models import BertConfig
from bert_jax.tasks.pretraining import Pretraining
from bert_jax.training.config import TrainConfig
from bert_jax.training.optimizers import OptimizerConfig


def get_config() -> TrainConfig:
    """The recipe."""
    return TrainConfig(
        encoder=BertConfig(
            vocab_size=8192,
            hidden_size=128,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=512,
            max_position_embeddings=128,
        ),
        task=Pretraining(recipe=Recipe(sequence_length=128)),
        optimizer=OptimizerConfig(
            name="adamw", learning_rate=1e-3, schedule="linear", warmup_steps=100
        ),
        batch_size=32,
        num_steps=600,
        eval_every=300,
        checkpoint_every=300,
    )
