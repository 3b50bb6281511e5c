r"""XLNet: a small one from the documentation installed with Python, base and large.

    python train.py --config=configs/xlnet.py --workdir=runs/xlnet
    python train.py --config=configs/xlnet.py:large \
        --config.task.paths=TEXT --workdir=runs/xlnet_large

"small" needs no data and takes minutes on two cores; its text, sizes and recipe are
those of `quickstart.py`.

"base" and "large" have the sizes of the published models, 116.8 and 360.3 million
parameters with the language model (zihangdai/xlnet, `xlnet_config.json`). The recipe is
that of the large model (Yang et al., 2019, section 3.1 and appendix A.4): rows of 512,
8,192 of them in a batch, half a million steps, a rate of 4e-4 after 40,000 steps that
then falls linearly, Adam with an epsilon of 1e-6, a weight decay of 0.01 and no bias
correction (model_utils.py of zihangdai/xlnet), dropout 0.1, K = 6. No other recipe is
published for base. Their scores on GLUE's dev sets (its README):

            MNLI  QNLI   QQP   RTE  SST-2  MRPC  CoLA  STS-B
    large   89.8  93.9  91.8  83.8   95.6  89.2  63.6   91.8
    base    86.8  91.7  91.4  74.0   94.7  88.2  60.2   89.5

Four things differ from the paper. Each row is read alone, without a memory of the text
before it, so that a batch follows from the seed and the examples seen. Short sequences
share a row. No batch is read backwards. The rate ends at 0, in the paper's code at a
thousandth of its peak (train.py).
"""

from dataclasses import replace

from bert_jax.data import RowConfig
from bert_jax.models import XLNetConfig
from bert_jax.tasks import PermutationConfig
from bert_jax.training import OptimizerConfig, TrainConfig
from configs import quickstart

PUBLISHED = {
    "base": XLNetConfig(d_model=768, n_layer=12, n_head=12, d_inner=3072),
    "large": XLNetConfig(d_model=1024, n_layer=24, n_head=16, d_inner=4096),
}


def get_config(size: str = "small") -> TrainConfig:
    """The recipe for "small", "base" or "large"."""
    if size == "small":
        return small()
    if size not in PUBLISHED:
        raise ValueError(f"size {size!r} is not one of small, {', '.join(PUBLISHED)}")
    recipe = RowConfig(
        sequence_length=512, dupe_factor=1, held_out=0.001, cls_last=True
    )
    return TrainConfig(
        encoder=PUBLISHED[size],
        dtype="bfloat16",
        task=PermutationConfig(recipe=recipe),
        optimizer=OptimizerConfig(
            name="bert_adam",
            learning_rate=4e-4,
            schedule="linear",
            warmup_steps=40_000,
            eps=1e-6,
        ),
        batch_size=8192,
        num_steps=500_000,
        log_every=100,
        eval_every=10_000,
        checkpoint_every=1_000,
    )


def small() -> TrainConfig:
    """Two layers of 128, on rows of 64."""
    return replace(
        quickstart.get_config(),
        encoder=XLNetConfig(
            vocab_size=4096,
            d_model=128,
            n_layer=2,
            n_head=2,
            d_inner=512,
            dropout=0.0,
            initializer_range=0.05,
            pad_token_id=0,
            max_position_embeddings=64,
        ),
        task=PermutationConfig(
            recipe=RowConfig(sequence_length=64, dupe_factor=3, cls_last=True),
            lowercase=True,
        ),
    )
