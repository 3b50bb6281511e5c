r"""ELECTRA: a tiny one in minutes on a laptop, or a published size.

    python train.py --config=configs/electra.py
    bert-jax prepare TEXT --length 128 --pairs none --held-out 0.001 --out rows128
    python train.py --config=configs/electra.py:small \
        --config.task.prepared=rows128 --workdir=runs/electra

Clark et al., 2020: a small generator fills in what was hidden, and the model learns
which tokens are not what they were. Sizes, rates, batches and steps of "small" (rows of
128), "base" and "large" (rows of 512) are those of table 6 and of
configure_pretraining.py of google-research/electra; "large" hides a quarter of the
tokens. The models that were released, whose scores on GLUE are in `glue_electra.py`,
read more text for longer, "small" for 4 million steps and with a generator of its own
width, "large" for 1.75 million (its README). `model/` holds the discriminator,
`generator/` the generator.

Two things differ from its code: a tenth of its rows hold one segment and the others
two, where rows are full sentences here; and its warm-up is multiplied by the decay. The
tiny one reads the documentation installed with Python, as the quickstart does.
"""

from typing import NamedTuple

from bert_jax.data.records import RowConfig
from bert_jax.models import BertConfig, sized
from bert_jax.objectives.masking import Masking
from bert_jax.tasks.electra import ElectraConfig
from bert_jax.training.config import TrainConfig
from bert_jax.training.optimizers import OptimizerConfig


class Numbers(NamedTuple):
    """What differs from size to size."""

    layers: int
    width: int
    embedding_size: int | None  # None: as wide as the layers
    generator: float
    length: int
    rate: float
    learning_rate: float
    batch_size: int
    num_steps: int


SIZES = {
    "small": Numbers(12, 256, 128, 1 / 4, 128, 0.15, 5e-4, 128, 1_000_000),
    "base": Numbers(12, 768, None, 1 / 3, 512, 0.15, 2e-4, 256, 766_000),
    "large": Numbers(24, 1024, None, 1 / 4, 512, 0.25, 2e-4, 2048, 400_000),
}


def get_config(size: str = "tiny") -> TrainConfig:
    """The recipe for "tiny" or one of `SIZES`."""
    if size == "tiny":
        return tiny()
    if size not in SIZES:
        raise ValueError(f"size {size!r} is none of tiny, {', '.join(SIZES)}")
    its = SIZES[size]
    return TrainConfig(
        encoder=sized(
            its.layers,
            its.width,
            embedding_size=its.embedding_size,
            model_type="electra",
        ),
        dtype="bfloat16",
        task=ElectraConfig(
            recipe=RowConfig(sequence_length=its.length, pairs="none", held_out=0.001),
            masking=Masking(rate=its.rate, mask_share=0.85, random_share=0.0),
            generator_hidden_size=its.generator,
        ),
        optimizer=OptimizerConfig(
            name="bert_adam",
            learning_rate=its.learning_rate,
            schedule="google",
            warmup_steps=10_000,
        ),
        batch_size=its.batch_size,
        num_steps=its.num_steps,
        log_every=100,
        eval_every=10_000,
        checkpoint_every=1_000,
    )


def tiny() -> TrainConfig:
    """Two layers of 128 and a generator of 64, on rows of 64 tokens."""
    return TrainConfig(
        encoder=BertConfig(
            vocab_size=4096,
            embedding_size=64,
            hidden_size=128,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=512,
            max_position_embeddings=64,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            initializer_range=0.05,
            model_type="electra",
        ),
        task=ElectraConfig(
            recipe=RowConfig(sequence_length=64, pairs="none"),
            generator_hidden_size=0.5,
        ),
        optimizer=OptimizerConfig(
            name="adamw",
            learning_rate=2e-3,
            schedule="linear",
            warmup_steps=100,
            b2=0.98,
        ),
        batch_size=64,
        num_steps=800,
        eval_every=400,
        checkpoint_every=400,
    )
