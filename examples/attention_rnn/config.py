r"""Translation by recurrent networks with attention, on a toy language or your pairs.

    python train.py --config=examples/attention_rnn/config.py --workdir=runs/rnn

learns the toy language of `examples/translation` with a GRU and the attention of
Bahdanau et al. (2015); `:luong` with an LSTM and that of Luong et al. (2015). Each part
can be changed, for example:

    --config.encoder.score=dot --config.encoder.attend=after --config.encoder.cell=lstm

    python train.py --config=examples/attention_rnn/config.py:multi30k \
        --config.task.train=train.tsv --config.task.dev=val.tsv \
        --config.task.text=de --config.task.translation=en --workdir=runs/rnn-multi30k

translates captions from German to English (Elliott et al., 2016): 29,000 pairs, words
that a language has twice or more, six epochs. `--config.encoder.score=none` is the
same without attention.
"""

from bert_jax.training import OptimizerConfig, TrainConfig
from examples.attention_rnn.model import AttentionRNNConfig
from examples.translation.config import multi30k_task
from examples.translation.task import TranslationConfig

# Where each paper puts its attention, with its score and its cell.
STYLES = {
    "bahdanau": {"cell": "gru", "score": "additive", "attend": "before"},
    "luong": {"cell": "lstm", "score": "general", "attend": "after"},
}
NAMES = (*STYLES, "multi30k")


def get_config(name: str = "bahdanau") -> TrainConfig:
    """One of `NAMES`; the first two are of the toy language."""
    if name not in NAMES:
        raise ValueError(f"{name!r} is unknown; choose one of {', '.join(NAMES)}")
    return multi30k() if name == "multi30k" else toy(name)


def toy(style: str) -> TrainConfig:
    """Small cells and the words of the toy language."""
    return TrainConfig(
        encoder=AttentionRNNConfig(
            vocab_size=96,
            embedding_size=64,
            hidden_size=64,
            max_position_embeddings=32,
            **STYLES[style],
        ),
        task=TranslationConfig(),
        optimizer=optimizer(rate=5e-3, warmup_steps=50),
        batch_size=64,
        num_steps=800,
        log_every=20,
        eval_every=400,
        checkpoint_every=400,
        keep=1,
    )


def multi30k() -> TrainConfig:
    """A smaller decoder than the papers' and six epochs of 226 batches."""
    return TrainConfig(
        encoder=AttentionRNNConfig(hidden_size=320, hidden_dropout_prob=0.2),
        task=multi30k_task(),
        optimizer=optimizer(rate=2e-3, warmup_steps=200),
        batch_size=128,
        num_steps=1356,
        log_every=20,
        eval_every=226,
        checkpoint_every=226,
        export="best",
    )


def optimizer(rate: float, warmup_steps: int) -> OptimizerConfig:
    """Adam with a linear decay; gradients of a norm above 1 are scaled to it."""
    return OptimizerConfig(
        name="adamw",
        learning_rate=rate,
        schedule="linear",
        warmup_steps=warmup_steps,
        weight_decay=0.0,
        clip_norm=1.0,
    )
