"""The contracts between a training run and what it trains.

A run needs a `TaskConfig`, which is part of its `TrainConfig`, and the `Task` that this
config prepares. The loop uses the members declared here and no others, so a new task or
objective needs these members and no base class.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import jax
from flax import linen as nn

from bert_jax.data.pipeline import RandomAccess

if TYPE_CHECKING:
    from bert_jax.training.config import TrainConfig

# A tree of parameters: nested mappings of arrays.
Params = Mapping[str, Any]
Batch = Mapping[str, jax.Array]
# Every average travels as (sum, count) until it is printed.
Totals = dict[str, tuple[jax.Array, jax.Array]]
# Arrays [B, ...], one entry a row; after an evaluation [N, ...], one entry for each row
# of the split.
Predictions = Mapping[str, Any]


class RowSource(RandomAccess, Protocol):
    """Rows of one split by number, and the sizes that attention kernels depend on."""

    @property
    def max_length(self) -> int:
        """The length in tokens that no row exceeds."""
        ...

    @property
    def sequences_per_row(self) -> int:
        """The largest number of sequences that share a row; 1 without packing."""
        ...


class EncoderConfig(Protocol):
    """The part of an encoder's config that a run reads or sets."""

    dtype: str
    remat: bool
    attention: str

    def validate(self) -> None:
        """Raises ValueError for the first field that cannot work."""
        ...

    def for_device(
        self, platform: str, capability: float, length: int, sequences: int
    ) -> "EncoderConfig":
        """This config with the attention kernel for a device and its rows."""
        ...

    def build(self) -> nn.Module:
        """The encoder."""
        ...


class SavedModel(Protocol):
    """A finished model."""

    def save(self, directory: str | Path) -> None:
        """Writes the model to a directory."""
        ...


class Task(Protocol):
    """Data, head, loss and scores of a run, with the rows opened.

    `bert_jax.tasks` has the tasks of this package; their bases hold useful defaults.
    """

    @property
    def rows(self) -> Mapping[str, RowSource]:
        """Rows by split: "train", "eval", and others to predict after the last step."""
        ...

    @property
    def fingerprint(self) -> Mapping[str, Any]:
        """Digests of data, tokenizer and teacher; they differ between two runs."""
        ...

    @property
    def example_batch(self) -> Mapping[str, Any]:
        """The smallest inputs that initialise the module: `init(key, **example)`."""
        ...

    @property
    def constants(self) -> Params:
        """Arrays that `loss` finds among the parameters and that nothing trains."""
        ...

    @property
    def loss_weights(self) -> Mapping[str, float]:
        """The terms of the objective, names of totals of `loss`, and their weights."""
        ...

    @property
    def best_metric(self) -> str:
        """The entry of `report("eval", …)` that decides which checkpoint is best.

        Higher is better, except for a name that ends with "loss".
        """
        ...

    def build(self, encoder: nn.Module) -> nn.Module:
        """The module to train: the task's head on `encoder`."""
        ...

    def pretrained_params(self, init_from: str) -> Params:
        """Parameters of a published or trained model that replace initial ones."""
        ...

    def loss(
        self, model: nn.Module, params: Params, batch: Batch, key: jax.Array | None
    ) -> tuple[Totals, Predictions]:
        """Sums and counts over a batch, and predictions `[B, ...]` for its rows.

        Totals hold the terms of `loss_weights`, `tokens` (real ones) and `flops`.
        A `key` of None means evaluation: no dropout, and rows whose `valid` is False
        do not count. Predictions are read in evaluation only.
        """
        ...

    def report(
        self, split: str, totals: Mapping[str, Any], predictions: Predictions
    ) -> dict[str, float]:
        """Averages and scores by name; {} for a split without labels.

        Args:
          split: "train" for the steps since the last log line, else a split of `rows`.
          totals: of all its batches, as numbers.
          predictions: `[N, ...]` in the order of the rows; {} for "train".
        """
        ...

    def to_models(
        self, module: nn.Module, params: Params, history: Mapping[str, Any]
    ) -> Mapping[str, SavedModel]:
        """Finished models by the directory each is saved to, "model" among them.

        `history` holds the config, step and scores of the run.
        """
        ...

    def write_predictions(
        self, workdir: Path, split: str, predictions: Predictions
    ) -> None:
        """Writes the predictions `[N, ...]` of a split below `workdir`, if any."""
        ...


class TaskConfig(Protocol):
    """A task as a recipe describes it."""

    def resolve(self, config: "TrainConfig") -> "TrainConfig":
        """The run's config, checked, with every field that follows from the data set.

        Raises ValueError for anything wrong that shows before rows are prepared.
        """
        ...

    def prepare(self, workdir: Path, encoder: Any, seed: int) -> Task:
        """Opens the data, or makes it below `workdir`; with several processes, process
        0 does so first.

        Args:
          workdir: of the run.
          encoder: config of the encoder, as `resolve` returned it.
          seed: of the run.
        """
        ...
