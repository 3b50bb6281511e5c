"""The config of a run: one typed value, made in a file of `configs/`."""

import dataclasses
import warnings
from typing import Any

from bert_jax.training.optimizers import OptimizerConfig
from bert_jax.training.sharding import LAYOUTS

RESUME = ("auto", "strict", "changed")
EXPORT = ("last", "best")

# Fields that change what a run prints or keeps, not what it computes.
HARMLESS = (
    *("log_every", "eval_every", "checkpoint_every", "keep", "keep_checkpoints"),
    *("export", "resume"),
)

# Learning rates outside of these are used by no recipe known to us, and warned of.
USUAL_RATES = (1e-7, 2e-2)
# Steps between evaluations, and between checkpoints, of a run that is silent on them.
EVERY = 500


@dataclasses.dataclass
class TrainConfig:
    """A run, in full.

    Attributes:
      encoder: config of the encoder; `encoder.build()` gives the module. Fine-tuning
        takes that of `init_from` where this is None.
      task: data, head, loss and score; see `bert_jax.tasks`.
      optimizer: optimizer and learning-rate schedule.
      batch_size: rows in one update, over all devices and micro-batches.
      num_steps: updates in the run.
      seed: the random seed of parameters, data order, masks and dropout.
      seeds: runs with the seeds `seed`, `seed` + 1, …, each in its own directory; their
        scores are averaged.
      patience: the run ends after so many evaluations in a row that are no better than
        the best one before; 0 never ends it early.
      init_from: directory of a published model to start from, or None.
      dtype: the type to compute in: "float32", "bfloat16" or "float16"; parameters,
        softmax, norms and losses are float32 in any case.
      remat: True computes each block again in the backward pass: less memory, a third
        more work, the same result.
      attention: its kernel: "plain", "splash", "one_tile", "cudnn" or "cudnn_packed";
        "auto" takes the one for these devices, rows and dropout.
      layout: where parameters live: "replicated", "fsdp", "tensor" or "fsdp_tensor".
      model_parallel: devices that share one copy of the parameters.
      accumulation: micro-batches a batch is computed in, one after the other.
      skip_spikes: leaves out steps whose loss or gradient norm is so many standard
        deviations above the mean of the last 128; OLMo 2 was trained with 6. 0 leaves
        out none.
      log_every: steps between lines of metrics; the last step has one, too.
      eval_every, checkpoint_every: steps between evaluations and between checkpoints;
        the last step has both. 0: one epoch where a task counts epochs, otherwise 500.
      keep: checkpoints kept beside the best one.
      keep_checkpoints: False deletes all checkpoints when the run is complete; its
        model and its scores stay. None: pre-training keeps them, so that it can be
        continued, and fine-tuning deletes them.
      export: the parameters that model/ holds, the "last" or the "best" ones by the
        task's first score among the evaluations that a checkpoint follows.
      resume: "auto" continues from the newest good checkpoint, "strict" stops if the
        newest one is damaged, "changed" continues although the config has changed.

    >>> TrainConfig(encoder=None, task=config.task, batch_size=8).num_steps
    1000
    """

    encoder: Any
    task: Any
    optimizer: OptimizerConfig = dataclasses.field(default_factory=OptimizerConfig)
    batch_size: int = 32
    num_steps: int = 1000
    seed: int = 0
    seeds: int = 1
    patience: int = 0
    init_from: str | None = None
    dtype: str = "float32"
    remat: bool = False
    attention: str = "auto"
    layout: str = "replicated"
    model_parallel: int = 1
    accumulation: int = 1
    skip_spikes: float = 0.0
    log_every: int = 20
    eval_every: int = 0
    checkpoint_every: int = 0
    keep: int = 2
    keep_checkpoints: bool | None = None
    export: str = "last"
    resume: str = "auto"


def resolve(config: TrainConfig) -> TrainConfig:
    """The config with every field that follows from start and data, and checked.

    Raises ValueError with the field, its value and the remedy.
    """
    config = config.task.resolve(config)
    keeps = config.keep_checkpoints
    config = dataclasses.replace(
        config,
        eval_every=config.eval_every or EVERY,
        checkpoint_every=config.checkpoint_every or EVERY,
        keep_checkpoints=True if keeps is None else keeps,
    )
    check(config)
    return config


def check(config: TrainConfig) -> None:
    """Raises ValueError for the first field of a run that cannot work.

    >>> check(dataclasses.replace(config, batch_size=30, accumulation=4))
    Traceback (most recent call last):
    ValueError: batch_size=30 is not a multiple of accumulation=4; change one of them
    """
    for name in (
        "batch_size",
        "num_steps",
        "model_parallel",
        "accumulation",
        "log_every",
        "eval_every",
        "checkpoint_every",
        "keep",
        "seeds",
    ):
        if getattr(config, name) < 1:
            raise ValueError(f"{name}={getattr(config, name)}; it must be at least 1")
    for name in ("patience", "skip_spikes"):
        if not getattr(config, name) >= 0:  # nor NaN
            raise ValueError(f"{name}={getattr(config, name)}; it must be at least 0")
    known = {"layout": LAYOUTS, "export": EXPORT, "resume": RESUME}
    for name, choices in known.items():
        if getattr(config, name) not in choices:
            raise ValueError(
                f"{name}={getattr(config, name)!r} is unknown; "
                f"choose one of {', '.join(choices)}"
            )
    if config.batch_size % config.accumulation:
        raise ValueError(
            f"batch_size={config.batch_size} is not a multiple of "
            f"accumulation={config.accumulation}; change one of them"
        )
    config.optimizer.validate(config.num_steps)
    rate, (least, most) = config.optimizer.learning_rate, USUAL_RATES
    if not least <= rate <= most:
        warnings.warn(
            f"learning_rate={rate:g} is far from the usual 1e-5 to 1e-3",
            stacklevel=2,
        )
    encoder_config(config).validate()


def encoder_config(config: TrainConfig) -> Any:
    """The encoder's config with the run's own `dtype`, `remat` and `attention`."""
    encoder = config.encoder
    fields = {name: getattr(config, name) for name in ("dtype", "remat", "attention")}
    for name, value in fields.items():
        own = getattr(encoder, name)
        if own not in (getattr(type(encoder), name), value):
            raise ValueError(
                f"encoder.{name}={own!r} but {name}={value!r}; set {name} only"
            )
    return dataclasses.replace(encoder, **fields)


def flat(config: Any) -> dict[str, Any]:
    """The fields of a config by dotted path, as JSON would hold them."""
    fields = {}
    for path, value in _leaves(config, ""):
        fields[path] = list(value) if isinstance(value, tuple) else value
    return fields


def _leaves(value, path):
    if not dataclasses.is_dataclass(value):
        yield path, value
        return
    for field in dataclasses.fields(value):
        below = f"{path}.{field.name}" if path else field.name
        yield from _leaves(getattr(value, field.name), below)
