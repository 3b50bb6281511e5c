"""The optimizers BERT is trained with, as Optax transforms.

Optax's parts serve wherever they compute the right thing. Three do not: its Adam
always corrects bias, its clipping writes a second copy of the gradients, and its
norm a third. Norms are of whole leaves: a layer is a leaf here, not a slice of a
stacked array.
"""

import dataclasses
import fnmatch
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax

from bert_jax.training.schedules import DECAYING, SCHEDULES

OPTIMIZERS = ("bert_adam", "adamw", "lamb")
_LAYER = "layer_"  # as the names of layers begin in a path


@dataclasses.dataclass
class OptimizerConfig:
    """The optimizer and its learning rate.

    `bert_adam` is Google's (`optimization.py`: no bias correction), `adamw`
    Loshchilov & Hutter 2019, `lamb` You et al. 2020 as ALBERT trains with it (no
    bias correction).

    Attributes:
      name: "bert_adam", "adamw" or "lamb".
      learning_rate: the highest one of the schedule.
      schedule: one of `schedules.SCHEDULES`, such as "linear", "google" or "constant".
      warmup_steps: steps in which the rate rises from 0.
      decay_steps: steps of the last phase of "warmup_stable_..."; 0 for others.
      weight_decay: of all parameters but biases and the scales of norms.
      b1, b2, eps: of Adam's moments.
      clip_norm: largest global norm of the gradients; 0 or None turns clipping off.
      layer_decay: the rate shrinks by this factor with each layer below the head, see
        `rate_factors`.
      frozen: parameters that stay as they are: parts of their paths ("embeddings",
        "layer_[0-3]", "encoder").

    >>> rate = learning_rate(OptimizerConfig(schedule="linear", warmup_steps=10), 110)
    >>> [f"{float(rate(step)):.1e}" for step in (0, 5, 10, 60, 110)]
    ['0.0e+00', '5.0e-05', '1.0e-04', '5.0e-05', '0.0e+00']
    """

    name: str = "bert_adam"
    learning_rate: float = 1e-4
    schedule: str = "google"
    warmup_steps: int = 0
    decay_steps: int = 0
    weight_decay: float = 0.01
    b1: float = 0.9
    b2: float = 0.999
    eps: float = 1e-6
    clip_norm: float | None = 1.0
    layer_decay: float = 1.0
    frozen: tuple[str, ...] = ()

    def validate(self, num_steps: int) -> None:
        """Raises ValueError for the first field that cannot work."""
        _validate_names(self)
        _validate_numbers(self)
        _validate_steps(self, num_steps)


def make_optimizer(
    config: OptimizerConfig, num_steps: int
) -> optax.GradientTransformation:
    """The optimizer that `config` names, for a run of `num_steps`.

    Its state has the same structure whatever the config, so that a run can go on
    under a changed one.
    """
    config.validate(num_steps)
    adam = optax.scale_by_adam if config.name == "adamw" else scale_by_bert_adam
    clip, trust_ratio = optax.identity(), optax.identity()
    if config.clip_norm:
        clip = clip_by_global_norm(config.clip_norm)
    if config.name == "lamb":
        trust_ratio = optax.masked(optax.scale_by_trust_ratio(), decay_mask)
    return optax.chain(
        clip,
        adam(b1=config.b1, b2=config.b2, eps=config.eps),
        optax.add_decayed_weights(config.weight_decay, mask=decay_mask),
        trust_ratio,
        scale_by_path(config.frozen, config.layer_decay),
        optax.scale_by_learning_rate(learning_rate(config, num_steps)),
    )


def learning_rate(
    config: OptimizerConfig, num_steps: int
) -> Callable[[jax.Array], jax.Array]:
    """The function from a step, counted from 0, to the learning rate it uses."""
    schedule = SCHEDULES[config.schedule]

    def rate(step):
        factor = schedule(step, config.warmup_steps, num_steps, config.decay_steps)
        return config.learning_rate * factor

    return rate


def scale_by_bert_adam(
    b1: float, b2: float, eps: float
) -> optax.GradientTransformation:
    """Adam as BERT trains: no bias correction, `eps` outside the root."""

    def init(params):
        return optax.scale_by_adam().init(params)

    def update(gradients, state, params=None):
        mu = optax.tree.update_moment(gradients, state.mu, b1, 1)
        nu = optax.tree.update_moment(gradients, state.nu, b2, 2)
        updates = jax.tree.map(lambda m, v: m / (jnp.sqrt(v) + eps), mu, nu)
        return updates, optax.ScaleByAdamState(state.count + 1, mu, nu)

    return optax.GradientTransformation(init, update)


def clip_by_global_norm(max_norm: float) -> optax.GradientTransformationExtraArgs:
    """Scales the gradients down to a global norm of at most `max_norm`.

    A product with one number, which XLA folds into whatever reads the gradients. Who
    knows the norm gives it to `update` as `norm`, so that nothing is summed twice.
    """

    def clip(gradients, state, params=None, *, norm=None, **others):
        norm = global_norm(gradients) if norm is None else norm
        factor = max_norm / jnp.maximum(norm, max_norm)
        return jax.tree.map(lambda g: g * factor, gradients), state

    return optax.GradientTransformationExtraArgs(optax.init_empty_state, clip)


def global_norm(tree: Any) -> jax.Array:
    """The root of the sum of squares over all leaves, as the norm of their norms.

    Squares are summed by a product with ones because XLA's CPU backend fuses the
    square into it; for a plain sum it first writes out every square (0.2 s instead
    of 0.02 s for 110 M numbers on two cores). Roots are taken leaf by leaf because
    it would otherwise add single numbers to the running total, which leaves three
    digits right.
    """
    norms = jnp.sqrt(jnp.stack([_squares(x) for x in jax.tree.leaves(tree)]))
    return jnp.sqrt(jnp.sum(norms * norms))


def _squares(x):
    x = jnp.atleast_1d(x).astype(jnp.float32)
    ones = jnp.ones(x.shape[-1], jnp.float32)
    rows = jnp.matmul(x * x, ones, precision=jax.lax.Precision.HIGHEST)
    return jnp.sum(rows)


def decay_mask(params: Any) -> Any:
    """True for each leaf with weight decay (and LAMB's trust ratio), as in BERT.

    All, the embeddings included, but biases and the scales of norms. What XLNet adds to
    queries decays (zihangdai/xlnet, model_utils.py: include_in_weight_decay).
    """

    def decays(path, _):
        return path[-1].key not in ("bias", "scale")

    return jax.tree.map_with_path(decays, params)


def is_frozen(path: str, frozen: Sequence[str]) -> bool:
    """True if a part of `path` matches one of the patterns (`layer_[0-3]`)."""
    parts = path.split("/")
    return any(fnmatch.filter(parts, pattern) for pattern in frozen)


def check_frozen(params: Any, frozen: Sequence[str]) -> None:
    """Raises ValueError for a pattern that no parameter's path has."""
    named = [path for path, _ in _named(params)]
    for pattern in frozen:
        if not any(is_frozen(path, [pattern]) for path in named):
            parts = dict.fromkeys(part for path in named for part in path.split("/"))
            raise ValueError(
                f"optimizer.frozen has {pattern!r}, which is in no parameter's path; "
                f"choose among {', '.join(list(parts)[:20])}, …"
            )


def freeze(params: Any, frozen: Sequence[str]) -> Any:
    """`params`, of which the frozen ones have no gradient, nor is one computed."""
    if not frozen:
        return params
    return _map(
        lambda path, x: jax.lax.stop_gradient(x) if is_frozen(path, frozen) else x,
        params,
    )


def scale_by_path(
    frozen: Sequence[str], layer_decay: float
) -> optax.GradientTransformation:
    """Updates times the `rate_factors` of their paths."""

    def scale(updates, params):
        scales = rate_factors(updates, frozen, layer_decay)
        return jax.tree.map(lambda x, factor: x * factor, updates, scales)

    return optax.stateless(scale)


def rate_factors(tree: Any, frozen: Sequence[str], layer_decay: float) -> Any:
    """The part of the learning rate that each parameter has.

    0 for frozen ones, 1 for the head, and less by `layer_decay` with each layer below:
    `layer_decay ** (n + 2 - depth)`, where layer i of n has depth i + 1 and embeddings
    have 0 (Clark et al., 2020; `_get_layer_lrs` of google-research/electra).
    """
    layers = [_layer(path) for path, _ in _named(tree)]
    count = max((i for i in layers if i is not None), default=-1) + 1

    def factor(path, _):
        if is_frozen(path, frozen):
            return 0.0
        if "embeddings" in path.split("/"):
            return layer_decay ** (count + 2)
        layer = _layer(path)
        return 1.0 if layer is None else layer_decay ** (count + 1 - layer)

    return _map(factor, tree)


def _layer(path):
    numbers = [x.removeprefix(_LAYER) for x in path.split("/") if x.startswith(_LAYER)]
    return int(numbers[0]) if numbers else None


def _named(tree):
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return [(_name(path), leaf) for path, leaf in leaves]


def _map(function: Callable[[str, Any], Any], tree):
    return jax.tree.map_with_path(lambda path, x: function(_name(path), x), tree)


def _name(path):
    return jax.tree_util.keystr(path, simple=True, separator="/")


def _validate_names(config):
    for field, known in (("name", OPTIMIZERS), ("schedule", SCHEDULES)):
        value = getattr(config, field)
        if value not in known:
            raise ValueError(
                f"optimizer.{field}={value!r} is not known; choose one of "
                + ", ".join(known)
            )


def _validate_numbers(config):
    rules = (
        ("learning_rate", lambda x: 0 < x < math.inf, "a positive number"),
        ("weight_decay", lambda x: 0 <= x < math.inf, "zero or a positive number"),
        ("b1", lambda x: 0 <= x < 1, "in [0, 1); BERT uses 0.9"),
        ("b2", lambda x: 0 <= x < 1, "in [0, 1); BERT uses 0.999"),
        ("eps", lambda x: 0 < x < math.inf, "a positive number; BERT uses 1e-6"),
        ("layer_decay", lambda x: 0 < x <= 1, "in (0, 1]; ELECTRA uses 0.8"),
        (
            "clip_norm",
            lambda x: x is None or 0 <= x < math.inf,
            "a positive number, or 0 for no clipping",
        ),
    )
    for field, holds, rule in rules:
        value = getattr(config, field)
        if not holds(value):
            raise ValueError(f"optimizer.{field}={value!r} must be {rule}")


def _validate_steps(config, num_steps):
    warmup, decay = config.warmup_steps, config.decay_steps
    if num_steps < 1:
        raise ValueError(f"num_steps={num_steps} must be at least 1")
    if not 0 <= warmup <= num_steps:
        raise ValueError(
            f"optimizer.warmup_steps={warmup} must be between 0 and "
            f"num_steps={num_steps}; lower it or train for longer"
        )
    if config.schedule not in DECAYING:
        if decay:
            raise ValueError(
                f"optimizer.decay_steps={decay} has no effect on the schedule "
                f"{config.schedule!r}; set it to 0 or use {DECAYING[0]!r}"
            )
    elif not 0 < decay <= num_steps - warmup:
        raise ValueError(
            f"optimizer.decay_steps={decay} must be between 1 and num_steps - "
            f"warmup_steps = {num_steps - warmup}; choose how long the decay lasts"
        )
