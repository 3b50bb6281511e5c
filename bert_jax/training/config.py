"""What a run is: one typed value, made in a file of `configs/`."""

import dataclasses
from pathlib import Path
from typing import Any

from bert_jax.training.optimizers import OptimizerConfig
from bert_jax.training.sharding import LAYOUTS

RESUME = ("auto", "strict", "changed")
EXPORT = ("last", "best")

# Fields that change what a run says or keeps, not what it computes.
HARMLESS = ("log_every", "eval_every", "checkpoint_every", "keep", "export", "resume")


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
      seed: of parameters, data order, masks and dropout.
      seeds: runs with the seeds `seed`, `seed` + 1, …, each in its own directory; their
        scores are averaged.
      patience: the run ends after so many evaluations in a row that are no better than
        the best one before; 0 never ends it early.
      init_from: directory of a published model to start from, or None.
      dtype: of the compute: "float32", "bfloat16" or "float16"; parameters, softmax,
        norms and losses are float32 whatever it is.
      remat: whether the backward pass computes each block anew: less memory, a third
        more work, the same result.
      attention: the kernel that computes it, one of `models.fused.KERNELS`, or "plain";
        "auto" takes the one for these devices, rows and dropout.
      layout: where parameters live: one of `training.sharding.LAYOUTS`.
      model_parallel: devices that share one copy of the parameters.
      accumulation: micro-batches a batch is computed in, one after the other.
      skip_spikes: leaves out steps whose loss or gradient norm is so many standard
        deviations above the mean of the last 128; OLMo 2 was trained with 6. 0 leaves
        out none.
      log_every, eval_every, checkpoint_every: in steps; the last step has all three.
      keep: checkpoints kept beside the best one.
      export: what `model/` holds, the "last" parameters or the "best" ones, by the
        task's first score among the evaluations that a checkpoint follows.
      resume: "auto" goes on from the newest good checkpoint, "strict" stops when the
        newest one is damaged, "changed" goes on although the config has changed.

    >>> dataclasses.replace(config, batch_size=30, accumulation=4).validate()
    Traceback (most recent call last):
    ValueError: batch_size=30 is not a multiple of accumulation=4; change one of them
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
    eval_every: int = 500
    checkpoint_every: int = 500
    keep: int = 2
    export: str = "last"
    resume: str = "auto"

    def run(self, workdir: str | Path) -> Any:
        """Trains: `bert_jax.train(self, workdir)`."""
        from bert_jax.training.runs import train  # which imports this module

        return train(self, workdir)

    def validate(self) -> None:
        """Raises ValueError with the field, its value and the remedy."""
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
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}; it must be at least 1")
        for name in ("patience", "skip_spikes"):
            if not getattr(self, name) >= 0:  # nor NaN
                raise ValueError(f"{name}={getattr(self, name)}; it must be at least 0")
        known = {"layout": LAYOUTS, "export": EXPORT, "resume": RESUME}
        for name, choices in known.items():
            if getattr(self, name) not in choices:
                raise ValueError(
                    f"{name}={getattr(self, name)!r} is unknown; "
                    f"choose one of {', '.join(choices)}"
                )
        if self.batch_size % self.accumulation:
            raise ValueError(
                f"batch_size={self.batch_size} is not a multiple of "
                f"accumulation={self.accumulation}; change one of them"
            )
        self.optimizer.validate(self.num_steps)
        self.computed.validate()
        self.task.validate(self.encoder)

    @property
    def computed(self) -> Any:
        """The encoder's config, as the run computes it."""
        how = {name: getattr(self, name) for name in ("dtype", "remat", "attention")}
        for name, value in how.items():
            said = getattr(self.encoder, name)
            if said not in (getattr(type(self.encoder), name), value):
                raise ValueError(
                    f"encoder.{name}={said!r} but {name}={value!r}; set {name} only"
                )
        return dataclasses.replace(self.encoder, **how)


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
