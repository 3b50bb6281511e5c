r"""GPT and GPT-2: language models of a text, and GPT's fine-tuning.

    python train.py --config=examples/gpt/config.py --config.task.text=input.txt \
        --workdir=runs/shakespeare
    python -m examples.gpt --model=runs/shakespeare --prompt="ROMEO:"

trains a GPT-2 of 0.8 million parameters on the characters of a text, in 2,000 steps of
768 characters, and lets it write. `characters_large` is for an accelerator: 10.7
million parameters, 5,000 steps of 16,384 characters. nanoGPT trains both sizes on Tiny
Shakespeare.

`pretrain` reads byte-level pieces in place of characters. `fine_tune` starts from its
result, or from a GPT or GPT-2 of transformers, and learns labels of texts as GPT did
(Radford et al., 2018, section 4.1); `from_scratch` starts from nothing:

    python train.py --config=examples/gpt/config.py:pretrain \
        --config.task.text=reviews.txt --workdir=runs/gpt
    python train.py --config=examples/gpt/config.py:fine_tune \
        --config.init_from=runs/gpt --config.task.train=train.tsv \
        --config.task.dev=dev.tsv --workdir=runs/labels
"""

from bert_jax.training import OptimizerConfig, TrainConfig
from examples.gpt.language_modelling import LanguageModellingConfig
from examples.gpt.model import GPTConfig
from examples.gpt.text_classification import TextClassificationConfig


def get_config(name: str = "characters") -> TrainConfig:
    """The recipe with a name, a key of `RECIPES`."""
    if name not in RECIPES:
        raise ValueError(f"{name!r} is unknown; choose one of {', '.join(RECIPES)}")
    return RECIPES[name]()


def gpt(layers: int, width: int, heads: int, context: int, dropout: float, **more):
    """A GPT-2 of a size."""
    return GPTConfig(
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        max_position_embeddings=context,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        **more,
    )


def language_model(
    encoder: GPTConfig, batch_size: int, num_steps: int, tokenizer: str
) -> TrainConfig:
    """A run with the optimizer of nanoGPT's small models."""
    return TrainConfig(
        encoder=encoder,
        task=LanguageModellingConfig(tokenizer=tokenizer),
        optimizer=OptimizerConfig(
            name="adamw",
            learning_rate=1e-3,
            schedule="cosine_to_tenth",
            warmup_steps=100,
            weight_decay=0.1,
            b2=0.99,
            eps=1e-8,
        ),
        batch_size=batch_size,
        num_steps=num_steps,
        log_every=100,
        eval_every=500,
        checkpoint_every=500,
        keep=1,
        export="best",
    )


def fine_tuning(encoder: GPTConfig | None) -> TrainConfig:
    """A run with the optimizer of GPT's fine-tuning."""
    return TrainConfig(
        encoder=encoder,
        task=TextClassificationConfig(),
        optimizer=OptimizerConfig(
            name="adamw",
            learning_rate=6.25e-5,
            schedule="linear",
            weight_decay=0.01,
            eps=1e-8,
        ),
        batch_size=32,
        eval_every=0,
        checkpoint_every=0,
        keep=1,
        export="best",
    )


PRETRAINED = gpt(4, 256, 4, 128, 0.1, vocab_size=8_000)
RECIPES = {
    "characters": lambda: language_model(
        gpt(4, 128, 4, 64, 0.0), 12, 2_000, "characters"
    ),
    "characters_large": lambda: language_model(
        gpt(6, 384, 6, 256, 0.2), 64, 5_000, "characters"
    ),
    "pretrain": lambda: language_model(PRETRAINED, 32, 5_000, "bpe"),
    "fine_tune": lambda: fine_tuning(None),
    "from_scratch": lambda: fine_tuning(PRETRAINED),
}
