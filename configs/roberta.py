r"""RoBERTa: a small one in minutes on a laptop, or a published size.

    python train.py --config=configs/roberta.py
    bert-jax prepare TEXT --vocabulary bpe --cased --vocab-size 50265 \
        --max-length 512 --pairs none --held-out 0.001 --out rows512
    python train.py --config=configs/roberta.py:base \
        --config.task.prepared=rows512 --workdir=runs/roberta

Liu et al., 2019: byte-level BPE, full sentences without pairs, dynamic masks, Adam with
a b2 of 0.98 and no clipping. Sizes and numbers of "base" and "large" are those of its
table 9 and of the model cards (batches of 8K, half a million steps). Scores on GLUE:
see `glue_roberta.py`. The paper's perplexity after 31,000 steps of 8K rows on BERT's
text is 3.77 (table 3), so `mlm_loss` 1.33.

Four things differ: fairseq applies weight decay to biases and norms too, and never
draws a special token as the random one (mask_tokens_dataset.py); short sequences share
a row; and the vocabulary is trained on the text, where theirs is GPT-2's. The small
model reads the documentation installed with Python, as the quickstart does.
"""

from dataclasses import replace

from bert_jax.data import RowConfig
from bert_jax.models import sized
from bert_jax.tasks import PretrainingConfig
from bert_jax.training import OptimizerConfig, TrainConfig
from configs import quickstart

# Differences between its encoder and BERT's.
FAMILY = dict(
    model_type="roberta",
    type_vocab_size=1,
    pad_token_id=1,
    position_offset=2,
    layer_norm_eps=1e-5,
)
# Layers, width, learning rate, warm-up.
SIZES = {"base": (12, 768, 6e-4, 24_000), "large": (24, 1024, 4e-4, 30_000)}


def get_config(size: str = "tiny") -> TrainConfig:
    """The recipe for "tiny", "base" or "large"."""
    if size == "tiny":
        return tiny()
    if size not in SIZES:
        raise ValueError(f"size {size!r} is not one of tiny, {', '.join(SIZES)}")
    layers, width, rate, warmup = SIZES[size]
    return TrainConfig(
        encoder=sized(
            layers, width, vocab_size=50265, max_position_embeddings=514, **FAMILY
        ),
        dtype="bfloat16",
        task=task(RowConfig(sequence_length=512, pairs="none", held_out=0.001)),
        optimizer=optimizer(rate, warmup),
        batch_size=8192,
        num_steps=500_000,
        log_every=100,
        eval_every=10_000,
        checkpoint_every=1_000,
    )


def tiny() -> TrainConfig:
    """Two layers of 128 on rows of 64 tokens."""
    base = quickstart.get_config()
    return replace(
        base,
        encoder=replace(base.encoder, max_position_embeddings=66, **FAMILY),
        task=task(RowConfig(sequence_length=64, pairs="none")),
        optimizer=optimizer(2e-3, 100),
    )


def task(recipe: RowConfig) -> PretrainingConfig:
    """Masked LM with a cased, byte-level vocabulary."""
    return PretrainingConfig(vocabulary="bpe", lowercase=False, recipe=recipe)


def optimizer(learning_rate: float, warmup_steps: int) -> OptimizerConfig:
    """RoBERTa's Adam (table 9)."""
    return OptimizerConfig(
        name="adamw",
        learning_rate=learning_rate,
        schedule="linear",
        warmup_steps=warmup_steps,
        b2=0.98,
        clip_norm=0.0,
    )
