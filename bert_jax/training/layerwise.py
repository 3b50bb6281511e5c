"""Which parameters learn, and how fast: functions of a parameter's path."""

import fnmatch
from collections.abc import Callable, Sequence
from typing import Any

import jax
import optax

_LAYER = "layer_"


def is_frozen(path: str, frozen: Sequence[str]) -> bool:
    """Whether a part of `path` matches one of the patterns (`layer_[0-3]`)."""
    parts = path.split("/")
    return any(fnmatch.filter(parts, pattern) for pattern in frozen)


def check(params: Any, frozen: Sequence[str]) -> None:
    """Raises ValueError for a pattern that no parameter's path has."""
    named = [path for path, _ in _named(params)]
    for pattern in frozen:
        if not any(is_frozen(path, [pattern]) for path in named):
            parts = dict.fromkeys(part for path in named for part in path.split("/"))
            raise ValueError(
                f"optimizer.frozen has {pattern!r}, which is in no parameter's path; "
                f"choose among {', '.join(list(parts)[:20])}, …"
            )


def hold(params: Any, frozen: Sequence[str]) -> Any:
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
    """Updates times what `factors` says of their paths."""

    def scale(updates, params):
        scales = factors(updates, frozen, layer_decay)
        return jax.tree.map(lambda x, factor: x * factor, updates, scales)

    return optax.stateless(scale)


def factors(tree: Any, frozen: Sequence[str], layer_decay: float) -> Any:
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
