"""What a run compiles: init, update and evaluation, with their layouts."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from flax import linen as nn
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from bert_jax.training import layerwise, sharding
from bert_jax.training import step as steps
from bert_jax.training.config import TrainConfig, encoder_config
from bert_jax.training.optimizers import make_optimizer


@dataclasses.dataclass(frozen=True)
class Program:
    """The functions of a run over a mesh; nothing compiles before the first call.

    Attributes:
      model: the head with its encoder.
      mesh: devices, see `sharding.make_mesh`.
      state: shapes, types and layout of the training state.
      loss: `(params, batch, key) -> totals`, see `training.step`.
      init: `given parameters -> state`.
      train_step: `(state, batch) -> (state, totals)`; the old state is given up.
      eval_step: `(params, batch) -> (totals, rows)` without dropout; see `in_order`.
      lower: `shapes of a batch -> train_step` before it is compiled, on any devices.
    """

    model: nn.Module
    mesh: Mesh
    state: Any
    loss: steps.Loss
    init: Callable[[dict], steps.TrainState]
    train_step: Callable[
        [steps.TrainState, dict], tuple[steps.TrainState, steps.Totals]
    ]
    eval_step: Callable[[Any, dict], tuple[steps.Totals, Any]]
    lower: Callable[[dict], jax.stages.Lowered]

    def place(self, batch: dict[str, np.ndarray]) -> dict[str, jax.Array]:
        """This host's rows of a batch, put on the devices they belong to."""
        return sharding.place_batch(batch, self.mesh)

    def evaluate(
        self, params: Any, batches: Iterable[dict[str, np.ndarray]]
    ) -> tuple[Any, dict[str, np.ndarray]]:
        """Totals over `batches`, and predictions `[N, ...]` in the rows' own order."""
        totals, rows = None, []
        for batch in batches:
            new, found = self.eval_step(params, self.place(batch))
            totals = steps.add_totals(totals, new)
            rows.append(found)
        totals, rows = jax.device_get((totals, rows))
        return totals, in_order(rows)

    def gather(self, params: Any) -> Any:
        """Parameters as NumPy arrays, whole on every host."""
        whole = NamedSharding(self.mesh, PartitionSpec())
        return jax.device_get(jax.jit(lambda x: x, out_shardings=whole)(params))


def in_order(
    rows: Sequence[tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]],
) -> dict[str, np.ndarray]:
    """Predictions `[N, ...]` by row, from those of batches in any order.

    Args:
      rows: for each batch where its rows belong, which are valid, and predictions.
        Those of a batch of shorter rows are filled up with zeros on the axis of L.
    """
    valid = np.concatenate([valid for _, valid, _ in rows])
    places = np.concatenate([places for places, _, _ in rows])[valid]
    order = np.argsort(places, kind="stable")
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


def check_given(given: Any, state: steps.TrainState, origin: str) -> None:
    """Raises ValueError unless every given parameter has its place in `state`."""
    paths = jax.tree_util.tree_leaves_with_path
    name = functools.partial(jax.tree_util.keystr, simple=True, separator="/")
    needed = {name(path): x.shape for path, x in paths(state.params)}
    found = {name(path): x.shape for path, x in paths(given)}
    parts = {path.split("/")[0] for path in found}
    wrong = [
        f"{path} is {found.get(path)} there, {needed.get(path)} here"
        for path in sorted(needed.keys() | found.keys())
        if path.split("/")[0] in parts and found.get(path) != needed.get(path)
    ]
    if wrong:
        more = f" (and {len(wrong) - 3} more)" if len(wrong) > 3 else ""
        raise ValueError(
            f"init_from={origin!r} does not fit the config:\n"
            f"{'; '.join(wrong[:3])}{more}\nset encoder to what its config.json says"
        )


def encoder_on(config: TrainConfig, task: Any, mesh: Mesh) -> Any:
    """The encoder's config, with the attention kernel for these devices and rows."""
    device = mesh.devices.flat[0]
    gpu = device.platform == "gpu"
    return encoder_config(config).for_device(
        device.platform,
        float(device.compute_capability) if gpu else 0.0,
        task.rows["train"].max_length,
        task.rows["train"].sequences_per_row,
    )


def within(mesh: Mesh, function: Callable) -> Callable:
    """`function`, to which the mesh is known while it is traced.

    What XLA cannot cut, such as a kernel, cuts itself by that.
    """

    def call(*args):
        with jax.set_mesh(mesh):
            return function(*args)

    return call


def make_program(config: TrainConfig, task: Any, mesh: Mesh) -> Program:
    """Joins config, task and devices."""
    model = task.build(encoder_on(config, task, mesh).build())
    frozen = config.optimizer.frozen
    constants = _placed(task.constants, config.layout, mesh)

    def loss(params, batch, key, constants):
        held = layerwise.hold(params, frozen)
        totals, _ = task.loss(model, {**held, **constants}, batch, key)
        return totals

    def train_step(state, batch, key, constants):
        step = steps.make_train_step(
            functools.partial(loss, constants=constants),
            task.loss_weights,
            optimizer,
            config.accumulation,
            config.skip_spikes,
            gather=gather,
            scatter=scatter,
        )
        return step(state, batch, key)

    def eval_step(params, batch, constants):
        params = {**gather(params), **constants}
        totals, predictions = task.loss(model, params, batch, None)
        return totals, (batch["example"], batch["valid"], predictions)

    optimizer = make_optimizer(config.optimizer, config.num_steps)
    key = jax.random.key(config.seed)
    init = steps.make_init(
        lambda key: model.init(key, **task.example_batch), optimizer, config.skip_spikes
    )
    shapes = jax.eval_shape(init, key, {})
    layerwise.check(shapes.params, frozen)
    layout = sharding.layout(config.layout, shapes, mesh)
    init = jax.jit(init, out_shardings=layout)
    gather = functools.partial(
        sharding.gather, layout=layout.params, dtype=config.dtype
    )
    scatter = functools.partial(sharding.scatter, layout=layout.params)
    update = jax.jit(train_step, donate_argnums=0, out_shardings=(layout, None))
    # Whole on every host, for the scores.
    whole = NamedSharding(mesh, PartitionSpec())
    evaluate = jax.jit(eval_step, out_shardings=whole)
    abstract = jax.tree.map(
        lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), shapes, layout
    )
    key_shape = jax.eval_shape(lambda: key)
    return Program(
        model=model,
        mesh=mesh,
        state=abstract,
        loss=lambda params, batch, key: loss(params, batch, key, constants()),
        init=lambda given: init(key, given),
        train_step=within(
            mesh, lambda state, batch: update(state, batch, key, constants())
        ),
        lower=within(
            mesh, lambda batch: update.lower(abstract, batch, key_shape, constants())
        ),
        eval_step=within(
            mesh, lambda params, batch: evaluate(params, batch, constants())
        ),
    )


def _placed(constants: Mapping[str, Any], name: str, mesh: Mesh) -> Callable[[], Any]:
    """A function that gives constants on the devices, in the layout of parameters.

    They enter a program as an argument: a closure would bake them into it.
    """

    @functools.cache
    def placed():
        if not constants:
            return {}
        layout = sharding.layout(name, constants, mesh)
        return jax.jit(lambda x: x, out_shardings=layout)(constants)

    return placed
