"""What a run compiles: init, update and evaluation, with their layouts."""

import dataclasses
import functools
from collections.abc import Callable, Iterable
from typing import Any

import jax
import numpy as np
from flax import linen as nn
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from bert_jax.training import sharding
from bert_jax.training import step as steps
from bert_jax.training.config import TrainConfig
from bert_jax.training.optimizers import make_optimizer


@dataclasses.dataclass(frozen=True)
class Program:
    """The functions of a run over a mesh; nothing compiles before the first call.

    Attributes:
      model: the head with its encoder.
      mesh: devices, by the axes "data" and "model".
      state: shapes, types and layout of the training state.
      init: `given parameters -> state`.
      train_step: `(state, batch) -> (state, totals)`; the old state is given up.
      eval_step: `(params, batch) -> totals`.
    """

    model: nn.Module
    mesh: Mesh
    state: Any
    init: Callable[[dict], steps.TrainState]
    train_step: Callable[
        [steps.TrainState, dict], tuple[steps.TrainState, steps.Totals]
    ]
    eval_step: Callable[[Any, dict], steps.Totals]

    def place(self, batch: dict[str, np.ndarray]) -> dict[str, jax.Array]:
        """This host's rows of a batch, put on the devices they belong to."""
        return sharding.place_batch(batch, self.mesh)

    def evaluate(self, params: Any, batches: Iterable[dict[str, np.ndarray]]) -> Any:
        """Totals over `batches`, on the host."""
        totals = None
        for batch in batches:
            new = self.eval_step(params, self.place(batch))
            totals = steps.add_totals(totals, new)
        return jax.device_get(totals)

    def gather(self, params: Any) -> Any:
        """Parameters as NumPy arrays, whole on every host."""
        whole = NamedSharding(self.mesh, PartitionSpec())
        return jax.device_get(jax.jit(lambda x: x, out_shardings=whole)(params))


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


def make_program(config: TrainConfig, task: Any, mesh: Mesh) -> Program:
    """Joins config, task and devices."""
    model = task.model(config.encoder.build())
    loss = functools.partial(task.loss, model)
    optimizer = make_optimizer(config.optimizer, config.num_steps)
    key = jax.random.key(config.seed)
    init = steps.make_init(lambda key: model.init(key, **task.example), optimizer)
    shapes = jax.eval_shape(init, key, {})
    layout = sharding.layout(config.layout, shapes, mesh)
    init = jax.jit(init, out_shardings=layout)
    update = jax.jit(
        steps.make_train_step(loss, task.objective, optimizer, config.accumulation),
        donate_argnums=0,
        out_shardings=(layout, None),
    )
    return Program(
        model=model,
        mesh=mesh,
        state=jax.tree.map(
            lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s),
            shapes,
            layout,
        ),
        init=lambda given: init(key, given),
        train_step=lambda state, batch: update(state, batch, key),
        eval_step=jax.jit(steps.make_eval_step(loss)),
    )
