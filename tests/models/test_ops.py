"""Laws of matrix products."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.inference.describe import dots
from bert_jax.models import ops


def drawn(*shape):
    return jax.random.normal(jax.random.key(sum(shape)), shape)


def gradients(x, kernel, g):
    return jax.vjp(ops.dot, x, kernel)[1](g)


def test_products_of_any_rank_and_their_gradients_equal_numpys():
    x, kernel, g = drawn(2, 3, 4), drawn(4, 5), drawn(2, 3, 5)
    y, back = jax.vjp(lambda x, k: ops.matmul(x, k, "float32"), x, kernel)
    to_x, to_kernel = back(g)
    np.testing.assert_allclose(y, np.asarray(x) @ kernel, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(to_x, np.asarray(g) @ kernel.T, rtol=1e-5, atol=1e-6)
    expected = np.einsum("BLD,BLF->DF", x, g)
    np.testing.assert_allclose(to_kernel, expected, rtol=1e-5, atol=1e-6)


def test_gradients_in_bfloat16_are_those_of_the_same_numbers_in_float32():
    low = [drawn(*s).astype(jnp.bfloat16) for s in ((96, 32), (32, 64), (96, 64))]
    exact = gradients(*(a.astype(jnp.float32) for a in low))
    for ours, reference in zip(jax.jit(gradients)(*low), exact, strict=True):
        assert ours.dtype == jnp.bfloat16
        # One rounding to 8 bits, at the end.
        np.testing.assert_allclose(ours.astype(jnp.float32), reference, rtol=2**-8)


def test_long_sums_do_not_stall_in_bfloat16():
    # In bfloat16, 256 + 1 is 256.
    ones = jnp.ones((4096, 2), jnp.bfloat16)
    assert (ops.dot(ones.T, ones) == 4096).all()
    assert (gradients(ones, ones[:2], ones)[1] == 4096).all()


@pytest.mark.parametrize("wrong", [7, 99, -1, -8])
def test_an_id_outside_of_the_table_gives_nan_and_changes_no_row(wrong):
    table = jnp.arange(14.0).reshape(7, 2)

    def chosen(table):
        return jnp.nan_to_num(ops.lookup(table, jnp.array([3, wrong]))).sum()

    rows = ops.lookup(table, jnp.array([3, wrong]))
    np.testing.assert_array_equal(rows, [[6.0, 7.0], [jnp.nan, jnp.nan]])
    gradient = jax.grad(chosen)(table)
    np.testing.assert_array_equal(gradient, np.eye(7)[:, 3:4] * [[1, 1]])


def test_arrays_on_a_mesh_with_explicit_axes_are_refused_with_the_remedy():
    mesh = jax.make_mesh((2,), ("data",), axis_types=(jax.sharding.AxisType.Explicit,))
    shards = jax.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    ids = jax.device_put(jnp.array([[1, 2], [3, 4]]), shards)
    with pytest.raises(ValueError, match="explicit axes.*axis_types=.jax.sharding.Axi"):
        ops.lookup(jnp.ones((5, 3)), ids)


def test_bfloat16_is_never_multiplied_as_float32_on_cpus():
    low = [drawn(*s).astype(jnp.bfloat16) for s in ((6, 4), (4, 5), (6, 5))]
    text = jax.jit(gradients).lower(*low).as_text()
    dots = re.findall(r"dot_general .* : (.*)", text)
    assert len(dots) == 2  # the result itself is not asked for
    for dot in dots:
        assert re.fullmatch(r"\(\S+bf16>, \S+bf16>\) -> \S+xf32>.*", dot), dot


def test_a_product_of_two_branches_counts_once():
    shapes = [jax.ShapeDtypeStruct(s, jnp.bfloat16) for s in ((6, 4), (4, 5))]
    assert len(list(dots(jax.make_jaxpr(ops.dot)(*shapes).jaxpr))) == 1
