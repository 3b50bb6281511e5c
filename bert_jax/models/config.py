"""What every encoder's config must hold: each raises ValueError with the remedy."""

from collections.abc import Collection
from typing import Any

from bert_jax.models import layers
from bert_jax.models.kernels import select

DTYPES = ("float32", "bfloat16", "float16")


def check_common(config: Any, activation: str) -> None:
    """The fields that every config has; `activation` names the one of its MLP."""
    check_sizes(
        config,
        "vocab_size",
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "intermediate_size",
        "max_position_embeddings",
    )
    if config.hidden_size % config.num_attention_heads:
        raise ValueError(
            f"hidden_size={config.hidden_size} is not a multiple of "
            f"num_attention_heads={config.num_attention_heads}; change one of them"
        )
    check_choice(config, activation, layers.ACTIVATIONS)
    check_choice(config, "dtype", DTYPES)
    check_choice(config, "attention", ("auto", "plain", *select.KERNELS))


def check_sizes(config: Any, *names: str) -> None:
    """Fields that are at least 1."""
    for name in names:
        if getattr(config, name) < 1:
            raise ValueError(f"{name}={getattr(config, name)}; it must be at least 1")


def check_choice(config: Any, name: str, choices: Collection[str]) -> None:
    """A field that is one of a few."""
    if getattr(config, name) not in choices:
        raise ValueError(
            f"{name}={getattr(config, name)!r} is unknown; "
            f"choose one of {', '.join(choices)}"
        )


def check_rates(config: Any, *names: str) -> None:
    """Fields that are rates of dropout."""
    for name in names:
        if not 0 <= getattr(config, name) < 1:
            raise ValueError(
                f"{name}={getattr(config, name)} is not a probability below 1; "
                "choose one in [0, 1)"
            )


def check_length(length: int, config: Any) -> None:
    """Rows that are no longer than a config's positions."""
    if length > config.longest:
        raise ValueError(
            f"sequence length {length} exceeds the {config.longest} positions of "
            f"max_position_embeddings={config.max_position_embeddings}; "
            "truncate the input or raise it"
        )
