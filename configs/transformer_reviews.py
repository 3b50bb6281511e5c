r"""A Transformer that learns to classify reviews from nothing but these reviews.

    python train.py --config=configs/transformer_reviews.py --config.seeds=3 \
        --config.task.train=train.tsv --config.task.dev=dev.tsv \
        --config.task.test=test.tsv --workdir=runs/scratch

The classifier of the tutorials: a stack of encoder layers with as many heads as you
like, here 6 and 8, over a vocabulary that is learnt from the training texts
(`task.tokenizer=DIR` takes that of a model). Positions are the sinusoids of "Attention
is all you need" (Vaswani et al., 2017, section 3.5); with
`--config.encoder.sinusoidal_pos_embds=false` a table is learnt, as in BERT.

    --config.encoder.num_hidden_layers=12 --config.encoder.num_attention_heads=16

The same reviews, fine-tuned: configs/glue.py with `--config.init_from=DIR`.
"""

from bert_jax.models import BertConfig
from bert_jax.tasks.classification import ClassificationConfig
from bert_jax.training.config import TrainConfig
from bert_jax.training.optimizers import OptimizerConfig


def get_config() -> TrainConfig:
    """The recipe."""
    return TrainConfig(
        encoder=BertConfig(
            vocab_size=8000,
            hidden_size=128,
            num_hidden_layers=6,
            num_attention_heads=8,
            intermediate_size=512,
            max_position_embeddings=128,
            initializer_range=0.1,
            sinusoidal_pos_embds=True,
        ),
        task=ClassificationConfig(epochs=5.0),
        optimizer=OptimizerConfig(name="adamw", learning_rate=2e-4, schedule="linear"),
        batch_size=32,
        keep=1,
        export="best",
    )
