r"""The Transformer of "Attention is all you need", on a toy language or your own pairs.

    python train.py --config=examples/translation/config.py --workdir=runs/toy

learns from 4,000 sentences to translate English into a made-up language with its own
word order and agreement (`toy_language.py`). 500 other sentences are translated and
compared (`exact_match`), and written to predictions/eval.tsv.

    python train.py --config=examples/translation/config.py:base \
        --config.task.train=train.tsv --config.task.dev=dev.tsv --workdir=runs/base

The published sizes (Vaswani et al., 2017, table 3; sections 5.1 to 5.4) on files of
lines text<TAB>translation: 37,000 pieces for both languages, Adam with its rate in
equation 3, 100,000 steps for base and 300,000 for big. On newstest2014 from English to
German the paper has a BLEU of 27.3 and 28.4, with a beam of 4, an alpha of 0.6 and the
average of the last checkpoints. Its batches have 25,000 tokens on each side; here they
have 512 pairs.

    python train.py --config=examples/translation/config.py:multi30k \
        --config.task.train=train.tsv --config.task.dev=val.tsv \
        --config.task.text=de --config.task.translation=en --workdir=runs/multi30k

translates captions from German to English (Elliott et al., 2016) with three layers:
29,000 pairs, words that a language has twice or more, eight epochs. The test file is
scored afterwards, see `evaluation_config.py`.
"""

from bert_jax.models import TransformerConfig
from bert_jax.training import OptimizerConfig, TrainConfig
from examples.translation.task import TranslationConfig

# Of the published models: encoder, steps, and the peak of equation 3.
BIG = TransformerConfig(
    hidden_size=1024,
    num_attention_heads=16,
    intermediate_size=4096,
    hidden_dropout_prob=0.3,
    initializer_range=0.03,
)
SIZES = {"base": (TransformerConfig(), 100_000), "big": (BIG, 300_000)}
WARMUP = 4_000


def get_config(size: str = "toy") -> TrainConfig:
    """The recipe for "toy", "multi30k" or one of `SIZES`."""
    if size in SMALL:
        return SMALL[size]()
    if size not in SIZES:
        known = ", ".join((*SMALL, *SIZES))
        raise ValueError(f"size {size!r} is unknown; choose one of {known}")
    encoder, steps = SIZES[size]
    return TrainConfig(
        encoder=encoder,
        dtype="bfloat16",
        task=TranslationConfig(max_length=256),
        optimizer=OptimizerConfig(
            name="adamw",
            learning_rate=(encoder.hidden_size * WARMUP) ** -0.5,
            schedule="inverse_sqrt",
            warmup_steps=WARMUP,
            weight_decay=0.0,
            b2=0.98,
            eps=1e-9,
            clip_norm=0.0,
        ),
        batch_size=512,
        num_steps=steps,
        log_every=100,
        eval_every=5_000,
        checkpoint_every=1_000,
        export="best",
    )


def toy() -> TrainConfig:
    """Two small stacks and the words of the toy language."""
    return TrainConfig(
        encoder=TransformerConfig(
            vocab_size=96,
            hidden_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=256,
            max_position_embeddings=32,
            initializer_range=0.12,
        ),
        task=TranslationConfig(),
        optimizer=OptimizerConfig(
            name="adamw",
            learning_rate=3e-3,
            schedule="inverse_sqrt",
            warmup_steps=100,
            weight_decay=0.0,
            b2=0.98,
            eps=1e-9,
            clip_norm=0.0,
        ),
        batch_size=64,
        num_steps=800,
        log_every=20,
        eval_every=400,
        checkpoint_every=400,
        keep=1,
    )


def multi30k() -> TrainConfig:
    """Two stacks of three layers, and eight epochs of 226 batches."""
    return TrainConfig(
        encoder=TransformerConfig(
            vocab_size=13_000,
            hidden_size=256,
            num_hidden_layers=3,
            num_attention_heads=8,
            intermediate_size=512,
            max_position_embeddings=64,
            hidden_dropout_prob=0.1,
            initializer_range=0.06,
        ),
        task=multi30k_task(),
        optimizer=OptimizerConfig(
            name="adamw",
            learning_rate=1e-3,
            schedule="inverse_sqrt",
            warmup_steps=400,
            weight_decay=0.0,
            b2=0.98,
            eps=1e-9,
            clip_norm=1.0,
        ),
        batch_size=128,
        num_steps=1808,
        log_every=20,
        eval_every=226,
        checkpoint_every=226,
        export="best",
    )


def multi30k_task() -> TranslationConfig:
    """The words of a language that it has twice or more, and room for the longest."""
    return TranslationConfig(min_count=2, max_length=56)


SMALL = {"toy": toy, "multi30k": multi30k}
