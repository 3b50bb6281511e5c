r"""A Transformer that learns to classify reviews from scratch.

    python train.py --config=configs/transformer_reviews.py --config.seeds=3 \
        --config.task.train=train.tsv --config.task.dev=dev.tsv \
        --config.task.test=test.tsv --workdir=runs/scratch

The classifier of many tutorials: a stack of encoder layers with any number of heads,
here 6 layers with 8 heads, and a vocabulary that is trained on the training texts
(`task.tokenizer=DIR` uses that of a model). Positions are the sinusoids of "Attention
is all you need" (Vaswani et al., 2017, section 3.5); with
`--config.encoder.sinusoidal_pos_embds=false` they are learnt, as in BERT.

    --config.encoder.num_hidden_layers=12 --config.encoder.num_attention_heads=16

To fine-tune a model on the same reviews: configs/glue.py with `--config.init_from=DIR`.
"""

from dataclasses import replace

from bert_jax.models import BertConfig
from bert_jax.tasks import ClassificationConfig
from bert_jax.training import TrainConfig
from configs import glue


def get_config() -> TrainConfig:
    """The recipe."""
    base = glue.get_config()
    return replace(
        base,
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
        optimizer=replace(base.optimizer, learning_rate=2e-4),
    )
