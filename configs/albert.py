r"""ALBERT: a small one in minutes on a laptop, or a published size.

    python train.py --config=configs/albert.py
    bert-jax prepare TEXT --vocabulary unigram --vocab-size 30000 --max-length 512 \
        --pairs order --dupe-factor 10 --held-out 0.001 --out rows512
    python train.py --config=configs/albert.py:base \
        --config.task.prepared=rows512 --workdir=runs/albert

Lan et al., 2020: layers that share their weights, embeddings of 128, sentence-order
prediction, masked n-grams of up to three words, LAMB. Batch, rate, steps and warm-up
are those of section 4.1 and of the flags of google-research/albert; sizes are those of
table 1 and of the published config.json (base 12, large 18, xlarge 60, xxlarge 235
million parameters), without dropout as in version 2. Scores: see `glue_albert.py`;
version 2 was trained 24 times (xxlarge and others) to 80 times (base) as long.

Differences from its code: a pair of one sentence is not labelled (see
docs/decisions.md), no n-gram spans two segments, and a comma belongs to the word before
it. The flags of create_pretraining_data.py stop at 20 predictions a row and cut the
text 40 times; here 15 % of the tokens are predicted, and 10 times are enough, because
each visit of a row draws a new mask. The small model reads the documentation installed
with Python, as the quickstart does.
"""

from dataclasses import replace

from bert_jax.data import RowConfig
from bert_jax.models import BertConfig
from bert_jax.objectives import Masking
from bert_jax.tasks import PretrainingConfig
from bert_jax.training import OptimizerConfig, TrainConfig
from configs import quickstart

# Layers, width, heads.
SIZES = {
    "base": (12, 768, 12),
    "large": (24, 1024, 16),
    "xlarge": (24, 2048, 16),
    "xxlarge": (12, 4096, 64),
}


def get_config(size: str = "tiny") -> TrainConfig:
    """The recipe for "tiny" or one of `SIZES`."""
    if size == "tiny":
        return tiny()
    if size not in SIZES:
        raise ValueError(f"size {size!r} is not one of tiny, {', '.join(SIZES)}")
    return TrainConfig(
        encoder=encoder(*SIZES[size]),
        dtype="bfloat16",
        task=task(RowConfig(sequence_length=512, dupe_factor=10, held_out=0.001)),
        optimizer=OptimizerConfig(
            name="lamb", learning_rate=1.76e-3, schedule="google", warmup_steps=3125
        ),
        batch_size=4096,
        num_steps=125_000,
        log_every=100,
        eval_every=5_000,
        checkpoint_every=1_000,
    )


def tiny() -> TrainConfig:
    """Two layers of 128 that share their weights, on rows of 64 tokens."""
    return replace(
        quickstart.get_config(),
        encoder=encoder(
            *(2, 128, 2),
            vocab_size=4096,
            embedding_size=64,
            max_position_embeddings=64,
            initializer_range=0.05,
        ),
        task=task(RowConfig(sequence_length=64, dupe_factor=3)),
        optimizer=OptimizerConfig(
            name="lamb", learning_rate=1e-2, schedule="google", warmup_steps=100
        ),
    )


def encoder(
    layers: int,
    width: int,
    heads: int,
    *,
    vocab_size: int = 30000,
    embedding_size: int = 128,
    max_position_embeddings: int = 512,
    initializer_range: float = 0.02,
) -> BertConfig:
    """ALBERT's encoder: one set of weights for all layers, no dropout."""
    return BertConfig(
        vocab_size=vocab_size,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        hidden_act="gelu_new",
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        max_position_embeddings=max_position_embeddings,
        initializer_range=initializer_range,
        embedding_size=embedding_size,
        num_hidden_groups=1,
        model_type="albert",
    )


def task(recipe: RowConfig) -> PretrainingConfig:
    """Sentence order, masked n-grams, SentencePiece."""
    return PretrainingConfig(
        vocabulary="unigram",
        recipe=replace(recipe, pairs="order"),
        masking=Masking(whole_words=True, ngram=3),
    )
