r"""ELECTRA: a tiny one in minutes on a laptop, or a published size.

    python train.py --config=configs/electra.py
    bert-jax prepare TEXT --max-length 128 --pairs none --held-out 0.001 --out rows128
    python train.py --config=configs/electra.py:small \
        --config.task.prepared=rows128 --workdir=runs/electra

Clark et al., 2020: a small generator fills in masked tokens, and the model learns which
tokens were replaced. Sizes, rates, batches and steps of "small" (rows of 128), "base"
and "large" (rows of 512) are those of table 6 and of configure_pretraining.py of
google-research/electra; "large" masks a quarter of the tokens. The released models,
whose scores on GLUE are in `glue_electra.py`, were trained longer and on more text:
"small" for 4 million steps, with a generator of its own width, "large" for 1.75 million
(its README). `model/` holds the discriminator, `generator/` the generator.

Two things differ from its code. Rows are full sentences, where a tenth of its rows hold
one segment and the others two; and its warm-up is multiplied by the decay. The tiny
model reads the documentation installed with Python, as the quickstart does.
"""

from dataclasses import replace
from typing import NamedTuple

from bert_jax.data import RowConfig
from bert_jax.models import sized
from bert_jax.objectives import Masking
from bert_jax.tasks import ElectraConfig
from bert_jax.training import OptimizerConfig, TrainConfig
from configs import quickstart


class Numbers(NamedTuple):
    """The settings of one size."""

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
        raise ValueError(f"size {size!r} is not one of tiny, {', '.join(SIZES)}")
    numbers = SIZES[size]
    return TrainConfig(
        encoder=sized(
            numbers.layers,
            numbers.width,
            embedding_size=numbers.embedding_size,
            model_type="electra",
        ),
        dtype="bfloat16",
        task=ElectraConfig(
            recipe=RowConfig(
                sequence_length=numbers.length, pairs="none", held_out=0.001
            ),
            masking=Masking(rate=numbers.rate, mask_share=0.85, random_share=0.0),
            generator_hidden_size=numbers.generator,
        ),
        optimizer=OptimizerConfig(
            name="bert_adam",
            learning_rate=numbers.learning_rate,
            schedule="google",
            warmup_steps=10_000,
        ),
        batch_size=numbers.batch_size,
        num_steps=numbers.num_steps,
        log_every=100,
        eval_every=10_000,
        checkpoint_every=1_000,
    )


def tiny() -> TrainConfig:
    """Two layers of 128 and a generator of 64, on rows of 64 tokens."""
    base = quickstart.get_config()
    return replace(
        base,
        encoder=replace(base.encoder, embedding_size=64, model_type="electra"),
        task=ElectraConfig(
            recipe=RowConfig(sequence_length=64, pairs="none"),
            generator_hidden_size=0.5,
        ),
    )
