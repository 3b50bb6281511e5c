"""A model as a table: shapes, parameters, FLOPs, memory."""

import collections
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax import traverse_util
from jax.extend.core import Jaxpr, JaxprEqn, jaxprs_in_params

from bert_jax.inference import checks, summary
from bert_jax.inference.model import Model, check_model
from bert_jax.models import MaskedLM, MultipleChoice, Pretraining
from bert_jax.sizes import backward_bytes, format_bytes

# Masked LM predicts this share of the tokens (Devlin et al., 2018, section 3.1).
PREDICTED = 0.15

# AdamW's two moments, beside parameters and gradients.
MOMENTS = 2


def describe(model: Model, length: int = 128, batch_size: int = 32) -> str:
    """A model as a table: shapes, parameters, FLOPs and memory.

    Nothing is compiled. FLOPs are those of the matrix products in the traced program; a
    multiplication and an addition count as one each. Memory in training is that of the
    arrays which the traced backward pass keeps, of parameters, gradients and AdamW's
    moments, all float32.

    Args:
      model: the model.
      length: tokens in a row, at most as many as the model has positions for.
      batch_size: rows computed together, for the memory.

    Raises:
      ValueError: for a length or a number of rows below 1, and for no model.

    >>> describe(model, length=8).splitlines()[1]
    'head: masked words'
    """
    check_model("describe", model)
    checks.check_count("length", length)
    checks.check_count("batch_size", batch_size)
    length = min(length, model.config.max_length)
    costs = _costs(model, length, batch_size)
    parts = summary.lines(model), _table(model.params), costs
    return "\n\n".join("\n".join(lines) for lines in parts)


def _table(params: Mapping[str, Any]) -> list[str]:
    """A line for each parameter; the same one of all layers is one line."""
    shapes: dict[str, tuple[int, ...]] = {}
    counts: collections.Counter[str] = collections.Counter()
    flat = traverse_util.flatten_dict(params, sep="/")
    # The encoder first, then the head.
    for path in sorted(flat, key=lambda path: not path.startswith("encoder/")):
        name = re.sub(r"layer_\d+", "layer_#", path)
        shapes.setdefault(name, flat[path].shape)
        counts[name] += 1
    width = max(map(len, shapes))
    rows = [("parameters", "shape", "each", "", "all")]
    for name, shape in shapes.items():
        each, count = math.prod(shape), counts[name]
        times = f"x {count}" if count > 1 else ""
        rows.append((name, str(list(shape)), f"{each:,}", times, f"{each * count:,}"))
    total = sum(x.size for x in flat.values())
    rows.append(("total", "", "", "", f"{total:,}"))
    return [f"{a:{width}}  {b:13}{c:>12} {d:5}{e:>13}" for a, b, c, d, e in rows]


def _costs(model: Model, length: int, batch_size: int) -> list[str]:
    """FLOPs of a token and bytes of a batch, as lines."""
    params = sum(x.size * 4 for x in jax.tree.leaves(model.params))
    activations = activation_bytes(model, length, batch_size)
    one, many = (products(model, rows, length) for rows in (1, batch_size))
    tokens = math.prod(_rows(model.head, 1, length)["input_ids"].shape)
    flops = sum(map(flops_of, one)) / tokens
    predicts = isinstance(model.head, Pretraining | MaskedLM)
    share = f", {PREDICTED:.0%} of them predicted" if predicts else ""
    sizes = [format_bytes(x) for x in (params, MOMENTS * params, activations)]
    total = format_bytes((2 + MOMENTS) * params + activations)
    return [
        f"FLOPs per token, rows of {length}{share}:",
        f"  forward {in_units(flops)}, training {in_units(3 * flops)}",
        f"memory, {batch_size} rows of {length}, float32:",
        f"  inference: parameters {sizes[0]}, the widest product "
        f"{format_bytes(max(map(bytes_of, many)))}",
        f"  training: {total}: parameters {sizes[0]}, gradients {sizes[0]}, AdamW "
        f"{sizes[1]}, activations {sizes[2]}",
    ]


def products(model: Model, batch_size: int, length: int) -> list[JaxprEqn]:
    """The matrix products of a forward pass."""
    rows = _rows(model.head, batch_size, length)
    return list(dots(jax.make_jaxpr(model.head.apply)(_shapes(model), **rows).jaxpr))


def dots(jaxpr: Jaxpr) -> Iterator[JaxprEqn]:
    """The matrix products of a program, those of inner programs included."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            yield equation
        inner = list(jaxprs_in_params(equation.params))
        # Branches are the same product on several platforms.
        for below in inner[-1:] if equation.primitive.name == "cond" else inner:
            yield from dots(below)


def flops_of(product: JaxprEqn) -> int:
    """FLOPs of a matrix product: a multiplication and an addition for each term."""
    (contracted, _), _ = product.params["dimension_numbers"]
    left: Any = product.invars[0].aval
    result: Any = product.outvars[0].aval
    return 2 * math.prod(left.shape[i] for i in contracted) * math.prod(result.shape)


def bytes_of(product: JaxprEqn) -> int:
    """Bytes of both operands and of the result."""
    arrays: list[Any] = [x.aval for x in (*product.invars, *product.outvars)]
    return sum(x.size * x.dtype.itemsize for x in arrays)


def activation_bytes(model: Model, length: int, batch_size: int) -> int:
    """Bytes that the backward pass keeps of `batch_size` rows, dropout included."""

    def loss(params, batch):
        rngs = {"dropout": jax.random.key(0)}
        output = model.head.apply(params, **batch, deterministic=False, rngs=rngs)
        # Any loss over logits keeps them, as this sum does.
        return sum(jax.nn.logsumexp(x, -1).sum() for x in jax.tree.leaves(output))

    batch = _rows(model.head, batch_size, length)
    return backward_bytes(loss, _shapes(model), batch)


def _rows(
    head: nn.Module, batch_size: int, length: int
) -> dict[str, jax.ShapeDtypeStruct]:
    """The shapes of a batch, with the positions that masked LM predicts."""
    choices = (2,) if isinstance(head, MultipleChoice) else ()
    rows = jax.ShapeDtypeStruct((batch_size, *choices, length), jnp.int32)
    batch = dict.fromkeys(("input_ids", "attention_mask", "token_type_ids"), rows)
    if isinstance(head, Pretraining | MaskedLM):
        predicted = (batch_size, max(1, round(PREDICTED * length)))
        batch["positions"] = jax.ShapeDtypeStruct(predicted, jnp.int32)
    return batch


def _shapes(model: Model) -> dict[str, Any]:
    return {"params": jax.eval_shape(lambda params: params, model.params)}


def in_units(number: float) -> str:
    """A number in a unit of its order, `22.5 M`, in powers of a thousand."""
    for unit in ("", " k", " M", " G"):
        if number < 1000:
            return f"{number:.3g}{unit}"
        number /= 1000
    return f"{number:.3g} T"
