"""A task without text: the smallest thing that the training loop can train."""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.training.config import TrainConfig
from bert_jax.training.optimizers import OptimizerConfig


@dataclasses.dataclass
class LineConfig:
    """An encoder's config whose encoder is one dense layer."""

    dtype: str = "float32"
    remat: bool = False
    attention: str = "auto"

    def validate(self):
        """Accepts everything."""

    def for_device(self, *device):
        return self

    def build(self):
        return nn.Dense(1)


class Points:
    """Rows of a line with noise: `x` `[N, 3]` and `y` `[N]`."""

    max_length, sequences_per_row = 3, 1

    def __init__(self, count, seed):
        draw = np.random.default_rng(seed)
        self.x = draw.normal(size=(count, 3)).astype(np.float32)
        noise = draw.normal(size=count).astype(np.float32)
        self.y = self.x @ np.float32([1, -2, 3]) + noise

    def __len__(self):
        return len(self.y)

    def gather(self, indices):
        return {"x": self.x[indices], "y": self.y[indices]}


@dataclasses.dataclass
class SavedLine:
    """A finished model."""

    params: dict

    def save(self, directory):
        directory.mkdir(parents=True, exist_ok=True)
        leaves = jax.tree_util.tree_leaves_with_path(self.params)
        arrays = {jax.tree_util.keystr(path): x for path, x in leaves}
        np.savez(directory / "line.npz", **arrays)


class LineTask:
    """Least squares with noise in training that depends on the key, as dropout does."""

    constants, loss_weights, best_metric = {}, {"loss": 1.0}, "loss"
    example_batch = {"inputs": np.zeros((1, 3), np.float32)}

    def __init__(self, seed, rows=45):
        self.rows = {"train": Points(rows, seed), "eval": Points(21, 99)}
        self.fingerprint = {"data": {"rows": rows}, "tokenizer": "none"}

    def build(self, encoder):
        return encoder

    def pretrained_params(self, init_from):
        return {"bias": np.full(1, float(init_from), np.float32)}

    def loss(self, model, params, batch, key):
        guesses = model.apply({"params": params}, batch["x"])[:, 0]
        if key is not None:
            guesses = guesses + 0.1 * jax.random.normal(key, guesses.shape)
        valid = batch.get("valid", jnp.ones(len(guesses), bool))
        squares = jnp.where(valid, (guesses - batch["y"]) ** 2, 0)
        count = valid.sum().astype(jnp.float32)
        work = {"tokens": (3 * count, count), "flops": (6 * count, count)}
        return {"loss": (squares.sum(), count), **work}, {"guesses": guesses}

    def report(self, split, totals, predictions):
        total, count = totals["loss"]
        return {"loss": float(total / count)}

    def to_models(self, module, params, history):
        return {"model": SavedLine(params)}

    def write_predictions(self, workdir, split, predictions):
        np.save(workdir / f"{split}.npy", predictions["guesses"])


@dataclasses.dataclass
class LineTaskConfig:
    """The task in a config; `rows` to train on."""

    rows: int = 45

    def resolve(self, config):
        return config

    def prepare(self, workdir, encoder, seed):
        return LineTask(seed, self.rows)


def line(**changes):
    """A run of twelve steps that saves at 4, 8 and 12 and writes each step down."""
    fields = dict(
        encoder=LineConfig(),
        task=LineTaskConfig(),
        optimizer=OptimizerConfig(name="adamw", learning_rate=0.3, schedule="constant"),
        batch_size=8,
        num_steps=12,
        log_every=1,
        eval_every=4,
        checkpoint_every=4,
        keep=3,
    )
    return TrainConfig(**{**fields, **changes})
