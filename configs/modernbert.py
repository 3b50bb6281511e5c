r"""ModernBERT, from raw text: a small one in minutes, and the published sizes.

    python train.py --config=configs/modernbert.py --workdir=runs/modernbert

trains the small one on the documentation installed with Python. The published ones read
rows of 1,024 tokens first and go on with 8,192:

    bert-jax prepare TEXT --max-length 1024 --pairs none --tokenizer DIR --out rows1024
    python train.py --config=configs/modernbert.py:base \
        --config.task.prepared=rows1024 --workdir=runs/base
    bert-jax prepare TEXT --max-length 8192 --pairs none --tokenizer DIR --out rows8192
    python train.py --config=configs/modernbert.py:base_8192 \
        --config.init_from=runs/base/model --config.task.prepared=rows8192 \
        --workdir=runs/base_8192

Warner et al., 2024, section 2.2.2 and tables 3 and 4, and modernbert-base-pretrain.yaml
of AnswerDotAI/ModernBERT: 30 % of the tokens are masked, in evaluation 15 %, no pairs.
1.719e12 tokens are read at a constant rate; for large, 900e9 of them (`large`), and the
rest at a tenth of the rate (`large_2`). Then the rotary base of global attention
changes from 10,000 to 160,000, and 300e9 tokens follow, the last 50e9 at a falling
rate. Weight decay is 1e-5 a step (from `large_2` on 1e-6); here it is divided by the
peak rate, because the optimizer multiplies it by the rate. Scores on dev (table 5;
MNLI-m):

             CoLA  SST-2  MRPC  STS-B   QQP  MNLI  QNLI   RTE
    base     65.1   96.0  92.2   91.8  92.1  89.1  93.9  87.4
    large    71.4   97.1  91.7   92.8  92.7  90.8  95.2  92.1

Differences: AdamW with clipped gradients instead of StableAdamW; the batch has its full
size from the first step on, and at 8,192 tokens that of large has 80 rows instead of 77
and 78; large starts from random weights, not from those of base; the moments of the
optimizer start at zero in each phase, with a short warm-up; special tokens are never
masked, and random tokens come from the whole vocabulary (there from ids up to a batch's
largest, sequence_packer.py).
"""

import dataclasses
from typing import NamedTuple

from bert_jax.data import RowConfig
from bert_jax.models import ModernBertConfig
from bert_jax.objectives import Masking
from bert_jax.tasks import PretrainingConfig
from bert_jax.training import OptimizerConfig, TrainConfig

BASE = ModernBertConfig(attention_out_dropout=0.1)
LARGE = dataclasses.replace(
    BASE,
    hidden_size=1024,
    num_hidden_layers=28,
    num_attention_heads=16,
    intermediate_size=2624,
)
SMALL = ModernBertConfig(
    vocab_size=4096,
    hidden_size=128,
    num_hidden_layers=4,
    num_attention_heads=4,
    intermediate_size=192,
    max_position_embeddings=128,
    local_attention=32,
    initializer_range=0.05,
    pad_token_id=0,
    global_rope_theta=10_000.0,
)


class Phase(NamedTuple):
    """The settings of one published phase; tokens in billions."""

    encoder: ModernBertConfig
    length: int
    batch_size: int
    accumulation: int
    learning_rate: float
    weight_decay: float
    tokens: float
    warmup: float
    decay: float = 0.0


PHASES = {
    "base": Phase(BASE, 1024, 4608, 72, 8e-4, 1e-5, 1719, 3),
    "base_8192": Phase(BASE, 8192, 72, 9, 3e-4, 1e-5, 300, 1, 50),
    "large": Phase(LARGE, 1024, 4928, 77, 5e-4, 1e-5, 900, 2),
    "large_2": Phase(LARGE, 1024, 4928, 77, 5e-5, 1e-6, 819, 1),
    "large_8192": Phase(LARGE, 8192, 80, 10, 5e-5, 1e-6, 300, 1, 50),
}


def get_config(size: str = "small") -> TrainConfig:
    """The recipe for "small" or one of `PHASES`."""
    if size == "small":
        return small()
    if size not in PHASES:
        raise ValueError(
            f"size {size!r} is unknown; choose small or one of {', '.join(PHASES)}"
        )
    phase = PHASES[size]
    steps = [
        round(billions * 1e9 / (phase.batch_size * phase.length))
        for billions in (phase.tokens, phase.warmup, phase.decay)
    ]
    theta = 10_000.0 if phase.length == 1024 else 160_000.0
    return TrainConfig(
        encoder=dataclasses.replace(phase.encoder, global_rope_theta=theta),
        dtype="bfloat16",
        remat=True,
        task=PretrainingConfig(
            recipe=RowConfig(
                sequence_length=phase.length, pairs="none", held_out=0.001
            ),
            masking=Masking(rate=0.3),
            eval_masking=Masking(rate=0.15),
        ),
        optimizer=OptimizerConfig(
            name="adamw",
            learning_rate=phase.learning_rate,
            schedule="warmup_stable_sqrt" if phase.decay else "constant",
            warmup_steps=steps[1],
            decay_steps=steps[2],
            weight_decay=phase.weight_decay / phase.learning_rate,
            b2=0.98,
        ),
        batch_size=phase.batch_size,
        accumulation=phase.accumulation,
        num_steps=steps[0],
        log_every=100,
        eval_every=4_000,
        checkpoint_every=1_000,
    )


def small() -> TrainConfig:
    """Rows of 128 tokens and a window of 16 to either side."""
    return TrainConfig(
        encoder=SMALL,
        task=PretrainingConfig(
            recipe=RowConfig(sequence_length=128, pairs="none"),
            masking=Masking(rate=0.3),
        ),
        optimizer=OptimizerConfig(
            name="adamw",
            learning_rate=2e-3,
            schedule="warmup_stable_sqrt",
            warmup_steps=60,
            decay_steps=200,
            b2=0.98,
        ),
        batch_size=32,
        num_steps=600,
        log_every=20,
        eval_every=300,
        checkpoint_every=300,
    )
