"""The functions that a run compiles, init, update and evaluation, and their layouts."""

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from bert_jax.training import sharding, step
from bert_jax.training.config import TrainConfig, encoder_config
from bert_jax.training.optimizers import check_frozen, freeze, make_optimizer
from bert_jax.training.step import TrainState, add_totals
from bert_jax.training.task import (
    Batch,
    EncoderConfig,
    Params,
    Predictions,
    Task,
    Totals,
)

# Rows of a batch: number in the source [B, 2], whether it counts, and predictions.
EvalRows = tuple[Any, Any, Predictions]


class Program:
    """The functions of a run over a mesh; nothing compiles before the first call.

    Attributes:
      model: the task's module on the encoder.
      mesh: devices, see `sharding.make_mesh`.
      state: shapes, types and layout of the training state.
    """

    def __init__(self, config: TrainConfig, task: Task, mesh: Mesh):
        self._config, self._task, self.mesh = config, task, mesh
        self.model = task.build(encoder_for(config, task, mesh).build())
        self._optimizer = make_optimizer(config.optimizer, config.num_steps)
        self._key = jax.random.key(config.seed)
        init = step.make_init(
            lambda key: self.model.init(key, **task.example_batch),
            self._optimizer,
            config.skip_spikes,
        )
        shapes = jax.eval_shape(init, self._key, {})
        check_frozen(shapes.params, config.optimizer.frozen)
        self._layout = sharding.layout(config.layout, shapes, mesh)
        self.state = jax.tree.map(
            lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s),
            shapes,
            self._layout,
        )
        self._init = jax.jit(init, out_shardings=self._layout)
        self._update = jax.jit(
            self._train_step, donate_argnums=0, out_shardings=(self._layout, None)
        )
        # Whole on every host, for the scores.
        whole = NamedSharding(mesh, PartitionSpec())
        self._evaluate = jax.jit(self._eval_step, out_shardings=whole)

    def init(self, params: Params) -> TrainState:
        """A new training state, in which `params` replace initial parameters."""
        return self._init(self._key, params)

    def process_rows(self, batch_size: int) -> np.ndarray:
        """The places in a batch whose rows this host reads, see `place`."""
        return sharding.process_rows(self.mesh, batch_size, jax.process_index())

    def place(self, batch: Mapping[str, np.ndarray]) -> Batch:
        """This host's rows of a batch, on the devices they belong to.

        A number of 64 bits `[B]` is two of 32 there, `[B, 2]`, the low one first.
        """
        words = {name: as_words(x) for name, x in batch.items()}
        return sharding.place_batch(words, self.mesh)

    def train_step(self, state: TrainState, batch: Batch) -> tuple[TrainState, Totals]:
        """One update; the old state's arrays are given up."""
        # A kernel, which XLA cannot partition, reads the mesh while it is traced.
        with jax.set_mesh(self.mesh):
            return self._update(state, batch, self._key, self._constants)

    def lower(self, batch: Mapping[str, jax.ShapeDtypeStruct]) -> jax.stages.Lowered:
        """The update for such a batch, before it is compiled, on any devices."""
        key = jax.eval_shape(lambda: self._key)
        with jax.set_mesh(self.mesh):
            return self._update.lower(self.state, batch, key, self._constants)

    def loss(self, params: Params, batch: Batch, key: jax.Array | None) -> Totals:
        """The totals of a batch, see `Task.loss`."""
        return self._loss(params, batch, key, self._constants)

    def evaluate(
        self, params: Params, batches: Iterable[Mapping[str, np.ndarray]]
    ) -> tuple[Totals, dict[str, np.ndarray]]:
        """Totals over `batches`, and predictions `[N, ...]` in the rows' own order."""
        totals, rows = None, []
        for batch in batches:
            with jax.set_mesh(self.mesh):
                new, predictions = self._evaluate(
                    params, self.place(batch), self._constants
                )
            # One batch ahead of the devices, so that a bar shows what is done.
            jax.block_until_ready(totals)
            totals = add_totals(totals, new)
            rows.append(predictions)
        totals, rows = jax.device_get((totals, rows))
        return totals, in_order(rows)

    def gather(self, params: Params) -> Params:
        """Parameters as NumPy arrays, whole on every host."""
        whole = NamedSharding(self.mesh, PartitionSpec())
        return jax.device_get(jax.jit(lambda x: x, out_shardings=whole)(params))

    @functools.cached_property
    def _constants(self) -> Params:
        """The task's constants on the devices, in the layout of parameters.

        They enter a program as an argument: a closure would bake them into it.
        """
        constants = self._task.constants
        if not constants:
            return {}
        layout = sharding.layout(self._config.layout, constants, self.mesh)
        return jax.jit(lambda x: x, out_shardings=layout)(constants)

    def _loss(self, params, batch, key, constants):
        trainable = freeze(params, self._config.optimizer.frozen)
        totals, _ = self._task.loss(self.model, {**trainable, **constants}, batch, key)
        return totals

    def _train_step(self, state, batch, key, constants):
        update = step.make_train_step(
            functools.partial(self._loss, constants=constants),
            self._task.loss_weights,
            self._optimizer,
            self._config.accumulation,
            self._config.skip_spikes,
            gather=self._gather,
            scatter=functools.partial(sharding.scatter, layout=self._layout.params),
        )
        return update(state, batch, key)

    def _eval_step(self, params, batch, constants):
        params = {**self._gather(params), **constants}
        totals, predictions = self._task.loss(self.model, params, batch, None)
        return totals, (batch["example"], batch["valid"], predictions)

    def _gather(self, params):
        layout = self._layout.params
        return sharding.gather(params, layout, self._config.dtype)


def encoder_for(config: TrainConfig, task: Task, mesh: Mesh) -> EncoderConfig:
    """The encoder's config, with the attention kernel for these devices and rows."""
    device, rows = mesh.devices.flat[0], task.rows["train"]
    gpu = device.platform == "gpu"
    return encoder_config(config).for_device(
        device.platform,
        float(device.compute_capability) if gpu else 0.0,
        rows.max_length,
        rows.sequences_per_row,
    )


def as_words(x: np.ndarray) -> np.ndarray:
    """uint64 `[B]` as uint32 `[B, 2]`, which JAX would cut to the low word."""
    if x.dtype != np.uint64:
        return x
    low, high = x & np.uint64(2**32 - 1), x >> np.uint64(32)
    return np.stack([low, high], 1).astype(np.uint32)


def in_order(
    rows: Sequence[EvalRows],
) -> dict[str, np.ndarray]:
    """Predictions `[N, ...]` by row, from those of batches in any order.

    Args:
      rows: for each batch where its rows belong, which are valid, and predictions.
        Those of a batch of shorter rows are filled up with zeros on the axis of L.
    """
    valid = np.concatenate([valid for _, valid, _ in rows])
    places = np.concatenate([places for places, _, _ in rows])[valid]
    order = np.lexsort(places.T)  # the high words decide, and then the low ones
    return {
        name: _stacked([predictions[name] for _, _, predictions in rows])[valid][order]
        for name in rows[0][2]
    }


def _stacked(arrays):
    """Arrays `[B, L, ...]`, or `[B]`, below each other; L becomes the largest."""
    if arrays[0].ndim < 2:
        return np.concatenate(arrays)
    length = max(x.shape[1] for x in arrays)
    flat = ((0, 0),) * (arrays[0].ndim - 2)
    fill = [((0, 0), (0, length - x.shape[1]), *flat) for x in arrays]
    return np.concatenate([np.pad(*pair) for pair in zip(arrays, fill, strict=True)])


def check_pretrained(params: Params, state: TrainState, init_from: str) -> None:
    """Raises ValueError unless every parameter has its place in `state`."""
    paths = jax.tree_util.tree_leaves_with_path
    name = functools.partial(jax.tree_util.keystr, simple=True, separator="/")
    needed = {name(path): x.shape for path, x in paths(state.params)}
    loaded = {name(path): x.shape for path, x in paths(params)}
    parts = {path.split("/")[0] for path in loaded}
    wrong = [
        f"{path} is {loaded.get(path)} there, {needed.get(path)} here"
        for path in sorted(needed.keys() | loaded.keys())
        if path.split("/")[0] in parts and loaded.get(path) != needed.get(path)
    ]
    if wrong:
        more = f" (and {len(wrong) - 3} more)" if len(wrong) > 3 else ""
        raise ValueError(
            f"init_from={init_from!r} does not fit the config:\n"
            f"{'; '.join(wrong[:3])}{more}\nset encoder to what its config.json says"
        )
