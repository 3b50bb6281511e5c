r"""ELMo: vectors of words in context from two language models (Peters et al., 2018).

    python train.py --config=examples/elmo/config.py --config.task.train=wiki.txt \
        --config.task.dev=valid.txt --workdir=runs/elmo

pre-trains a small network for text of a few megabytes: 128 numbers a direction, cells
of 512, a vocabulary of 20,000 words. Without task.dev a part of the documents of
task.train is held out; their perplexity is logged. For several files repeat the flag.

    python train.py --config=examples/elmo/config.py:original \
        --config.task.train=FILES --workdir=runs/original

The published sizes (93.6 million weights without the table of words). The paper trains
for ten epochs of the 1B Word Benchmark with Adagrad at 0.2, rows of 20 words and the
state of the row before; here with AdamW and rows of 64 words that begin empty.
"""

from bert_jax.training import OptimizerConfig, TrainConfig
from examples.elmo.model import ElmoConfig
from examples.elmo.task import ElmoTaskConfig

SIZES = ("small", "original")


def get_config(size: str = "small") -> TrainConfig:
    """The recipe for one of `SIZES`."""
    if size not in SIZES:
        raise ValueError(f"size {size!r} is unknown; choose one of {', '.join(SIZES)}")
    if size == "original":
        return recipe(ElmoConfig(), samples=8192, rate=5e-4, batch_size=128)
    encoder = ElmoConfig(
        vocab_size=20_000,
        hidden_size=128,
        cell_size=512,
        filters=(16, 32, 64, 144),
        max_characters=24,
    )
    return recipe(encoder, samples=1024, rate=3e-3, batch_size=32)


def recipe(
    encoder: ElmoConfig, samples: int, rate: float, batch_size: int
) -> TrainConfig:
    """A run of 1,000 steps."""
    return TrainConfig(
        encoder=encoder,
        task=ElmoTaskConfig(samples=samples),
        optimizer=OptimizerConfig(
            name="adamw",
            learning_rate=rate,
            schedule="linear",
            warmup_steps=100,
            weight_decay=0.0,
            clip_norm=10.0,
        ),
        batch_size=batch_size,
        num_steps=1_000,
        log_every=20,
        eval_every=250,
        checkpoint_every=250,
        keep=1,
    )
