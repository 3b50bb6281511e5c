"""Integer digests of arrays, and the record of a state that is built from them."""

import json
import zlib
from typing import Any

import jax
import jax.numpy as jnp

Leaves = dict[str, dict[str, Any]]


def digest(x: jax.Array) -> jax.Array:
    """A uint32 over the bits of `x`: the same in every layout.

    Each word is multiplied by an odd number that belongs to its place and added with
    wrap-around, so that one flipped bit, or two words exchanged, always shows.
    """
    if x.dtype == bool:
        x = x.astype(jnp.uint8)
    width = min(x.dtype.itemsize, 4)
    bits = jax.lax.bitcast_convert_type(x, f"uint{8 * width}").astype(jnp.uint32)
    place, stride = jnp.zeros((), jnp.uint32), 1
    for axis in reversed(range(bits.ndim)):
        index = jax.lax.broadcasted_iota(jnp.uint32, bits.shape, axis)
        place = place + index * jnp.uint32(stride % 2**32)
        stride *= bits.shape[axis]
    return jnp.sum(bits * (2 * place + 1), dtype=jnp.uint32)


@jax.jit
def _digests(arrays):
    # One program: many small ones with collectives in flight can lock CPU devices up.
    return [digest(x) for x in arrays]


def leaves(tree: Any) -> Leaves:
    """Shape, type and digest of every leaf, by path."""
    values = jax.device_get(_digests(jax.tree.leaves(tree)))
    record = shapes(tree)
    for name, value in zip(record, values, strict=True):
        record[name]["digest"] = int(value)
    return record


def shapes(tree: Any) -> Leaves:
    """Shape and type of every leaf, by path."""
    named = jax.tree_util.tree_leaves_with_path(tree)
    names = [jax.tree_util.keystr(p, simple=True, separator="/") for p, _ in named]
    facts = [{"shape": list(x.shape), "dtype": str(x.dtype)} for _, x in named]
    return dict(zip(names, facts, strict=True))


def differences(a: Leaves, b: Leaves) -> list[str]:
    """Paths at which two records differ."""
    return [name for name in sorted(a | b) if a.get(name) != b.get(name)]


def check_fit(step: int, saved: Leaves, state: Any) -> None:
    """Raises ValueError if `saved` are not the arrays that `state` is made of."""
    there = {name: {**leaf} for name, leaf in saved.items()}
    for leaf in there.values():
        del leaf["digest"]
    here = shapes(state)
    if wrong := differences(there, here):
        raise ValueError(
            f"checkpoint {step} does not fit the config: {some(wrong)} differ\n"
            f"{wrong[0]} is {_text(there.get(wrong[0]))} there and "
            f"{_text(here.get(wrong[0]))} here; use the config it was made with, "
            "or another workdir"
        )


def some(names: list[str]) -> str:
    """The first three names, and how many more there are."""
    more = f" and {len(names) - 3} more arrays" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def sign(record: dict[str, Any]) -> dict[str, Any]:
    """`record` as JSON returns it, with a checksum over all its other entries."""
    body = {key: value for key, value in record.items() if key != "crc32"}
    body = json.loads(json.dumps(body))
    text = json.dumps(body, sort_keys=True)
    return {**body, "crc32": zlib.crc32(text.encode())}


def _text(leaf):
    return f"{leaf['dtype']}{leaf['shape']}" if leaf else "absent"
