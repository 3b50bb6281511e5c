r"""Ablations that papers cite, at small scale.

    python -m examples.ablations --config=examples/ablations/config.py:nsp \
        --workdir=runs/nsp
    python -m examples.ablations --config=examples/ablations/config.py:static \
        --workdir=runs/static
    python -m examples.ablations --config=examples/ablations/config.py:shares \
        --workdir=runs/shares
    python -m examples.ablations --config=examples/ablations/config.py:direction \
        --workdir=runs/direction

Each command trains several variants of the quickstart's encoder with three seeds each,
for the same number of steps, on the documentation installed with Python. It prints the
scores of each variant on held-out text, with deviations over seeds, and writes them to
`table.md`. A seed is one of parameters, order, masks and dropout; rows and vocabulary
are the same.

- nsp: next-sentence prediction; the same rows without it; full sentences (Devlin et
  al., 2018, table 5; Liu et al., 2019, table 2). Masked LM is scored on the rows of
  each variant, which are the same for the first two only.
- static: dynamic masks against static ones, over some six visits of each row (Liu et
  al., 2019, table 1).
- shares: the shares of predicted tokens that become [MASK], stay, or become random
  (Devlin et al., 2018, table 8). All variants are scored with [MASK] only.
- direction: masked LM against a left-to-right LM (Devlin et al., 2018, table 5), scored
  on the same tokens. The first sees both sides, of which 15 % is masked; the second
  sees all of the left side.

The papers fine-tune the resulting models. With labelled files, so does this (but not
for `direction`, because the second model must not see tokens on the right):

    --config.train=train.tsv --config.dev=dev.tsv

`--config.base.seeds=5`, `--config.base.num_steps=2000` and the like change the runs.
"""

from dataclasses import replace

from bert_jax.data import RowConfig
from bert_jax.models import BertConfig
from bert_jax.objectives import Masking
from bert_jax.tasks import LeftToRightConfig, PretrainingConfig
from bert_jax.training import OptimizerConfig, TrainConfig
from examples.ablations.ablation import Ablation

# Shares of [MASK], of the token itself, of a random one, in percent (table 8).
SHARES = ((80, 10, 10), (100, 0, 0), (80, 0, 20), (80, 20, 0), (0, 20, 80), (0, 0, 100))


def get_config(name: str = "nsp") -> Ablation:
    """One of `ABLATIONS`."""
    if name not in ABLATIONS:
        raise ValueError(f"{name!r} is not one of {', '.join(ABLATIONS)}")
    return ABLATIONS[name]()


def base(pairs: str, num_steps: int) -> TrainConfig:
    """The run that the variants of all ablations change."""
    return TrainConfig(
        encoder=BertConfig(
            vocab_size=4096,
            hidden_size=128,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=512,
            max_position_embeddings=64,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            initializer_range=0.05,
        ),
        task=PretrainingConfig(recipe=RowConfig(sequence_length=64, pairs=pairs)),
        optimizer=OptimizerConfig(
            name="adamw",
            learning_rate=2e-3,
            schedule="linear",
            warmup_steps=min(100, num_steps),
            b2=0.98,
        ),
        batch_size=64,
        num_steps=num_steps,
        seeds=3,
        eval_every=num_steps,
        checkpoint_every=400,
        keep=1,
    )


def nsp() -> Ablation:
    """With and without next-sentence prediction."""

    def full_sentences(config):
        recipe = replace(config.task.recipe, pairs="none", dupe_factor=1)
        return replace(config, task=replace(config.task, recipe=recipe))

    config = base("next", 800)
    config.task.recipe.dupe_factor = 3
    return Ablation(
        base=config,
        variants={
            "with NSP": lambda config: config,
            "without NSP": lambda config: replace(
                config, task=replace(config.task, nsp_weight=0.0)
            ),
            "full sentences": full_sentences,
        },
        scores=("mlm_loss", "mlm_accuracy", "nsp_accuracy", "nsp_constant_accuracy"),
    )


def static() -> Ablation:
    """Static masks against dynamic ones."""
    return Ablation(
        base=base("none", 1600),
        variants={
            "dynamic": lambda config: config,
            "static": lambda config: with_masking(config, Masking(dynamic=False)),
        },
    )


def shares() -> Ablation:
    """Shares of [MASK], unchanged and random tokens among the predicted ones."""

    def variant(mask, random):
        masking = Masking(mask_share=mask / 100, random_share=random / 100)
        return lambda config: with_masking(config, masking)

    config = base("none", 800)
    config.task.eval_masking = Masking(mask_share=1.0, random_share=0.0)
    return Ablation(
        base=config,
        variants={
            f"{mask}/{same}/{random}": variant(mask, random)
            for mask, same, random in SHARES
        },
    )


def direction() -> Ablation:
    """Context from both sides against context from the left."""
    return Ablation(
        base=base("none", 800),
        variants={
            "both sides": lambda config: config,
            "left to right": lambda config: replace(
                config, task=LeftToRightConfig(**vars(config.task))
            ),
        },
    )


def with_masking(config: TrainConfig, masking: Masking) -> TrainConfig:
    """The run with other masking settings."""
    return replace(config, task=replace(config.task, masking=masking))


ABLATIONS = {"nsp": nsp, "static": static, "shares": shares, "direction": direction}
