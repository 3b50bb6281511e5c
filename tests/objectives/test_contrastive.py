"""Laws of the losses of sentence vectors."""

import functools
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.objectives import LOSSES, VectorGroups, matryoshka
from bert_jax.objectives.contrastive import DIRECTIONS, multiple_negatives, triplet

B, C, D = 6, 3, 10
SYMMETRIC = dict(directions=("query_to_doc", "doc_to_query"), joint=False)
CASES = {name: loss.function for name, loss in LOSSES.items()} | {
    "symmetric": functools.partial(multiple_negatives, **SYMMETRIC),
    "four_ways": functools.partial(multiple_negatives, directions=tuple(DIRECTIONS)),
    "harder": functools.partial(multiple_negatives, hardness=5.0, hardness_on="all"),
    "matryoshka": matryoshka(LOSSES["embedding_mse"].function, (10, 4), (1.0, 0.5)),
}


def batch():
    """`VectorGroups` for each kind of labels, on the same vectors."""
    draw = np.random.default_rng(3)
    vectors, teacher, guide = draw.normal(size=(3, B, C, D)).astype("f4")
    common = (vectors, np.ones((B, C), bool))
    scores, classes = draw.random((B, C - 1), "f4"), draw.integers(0, 3, B)
    return {
        "scores": VectorGroups(*common, scores, teacher, guide),
        "classes": VectorGroups(*common, classes),
    }


def filled(groups):
    """The same texts with two rows and a column more, in which there are none."""
    nothing = ((0, 2), (0, 1), (0, 0))

    def wider(x):
        return np.pad(x, nothing, constant_values=np.nan)

    labels = groups.labels
    shape = nothing[: labels.ndim]
    return VectorGroups(
        wider(groups.vectors),
        np.pad(groups.exists, nothing[:2]),
        np.pad(labels, shape, constant_values=9 if labels.ndim == 1 else np.nan),
        *(None if x is None else wider(x) for x in groups[3:]),
    )


@jax.jit
def everything(batch):
    """(sum, count) of each case, and the gradient of the sum."""

    def one(name, loss):
        is_labelled = name == "supervised_contrastive"
        groups = batch["classes" if is_labelled else "scores"]

        def total(vectors):
            return loss(groups._replace(vectors=vectors))

        (value, count), grads = jax.value_and_grad(total, has_aux=True)(groups.vectors)
        return value, count, grads

    return {name: one(name, loss) for name, loss in CASES.items()}


@pytest.fixture(scope="module")
def padded():
    return {kind: filled(groups) for kind, groups in batch().items()}


@pytest.fixture(scope="module")
def results(padded):
    return everything(padded)


@pytest.fixture(scope="module")
def plain():
    return everything(batch())


@pytest.mark.parametrize("name", CASES)
def test_missing_texts_and_rows_that_fill_a_batch_never_count(name, plain, results):
    (value, count, grads), (other, others, wider) = plain[name], results[name]
    assert float(count) == float(others) > 0
    np.testing.assert_allclose(other, value, rtol=2e-6)
    np.testing.assert_allclose(wider[:B, :C], grads, atol=1e-6 * np.abs(grads).max())
    assert not np.any(wider[B:]) and not np.any(wider[:, C:]) and np.any(grads)


def sharded():
    """Rows over all eight devices."""
    mesh = jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    return jax.NamedSharding(mesh, jax.P("data"))


def test_rows_over_eight_devices_give_the_losses_of_one(padded, results):
    split = everything(jax.device_put(padded, sharded()))
    for name, (value, count, grads) in results.items():
        np.testing.assert_allclose(split[name][0], value, rtol=1e-6, err_msg=name)
        assert float(split[name][1]) == float(count)
        limit = 1e-6 * np.abs(grads).max()
        np.testing.assert_allclose(split[name][2], grads, atol=limit, err_msg=name)


def test_negatives_of_all_devices_take_one_gather_of_vectors():
    def loss(vectors, exists):
        return multiple_negatives(VectorGroups(vectors, exists))

    shapes = [((64, 2, 5), "f4"), ((64, 2), bool)]
    split = [jax.ShapeDtypeStruct(*x, sharding=sharded()) for x in shapes]
    text = jax.jit(loss).lower(*split).compile().as_text()
    gathered = re.findall(r" f32\[([\d,]+)\]\S* all-gather", text)
    sizes = [math.prod(map(int, x.split(","))) for x in gathered]
    # Of queries or of positives; never of the 64 x 64 scores.
    assert sizes == [64 * 5]


# The first row's query and positive are alike, and opposite to the second row's; all
# negatives are at right angles to these.
E1, E2 = (1.0, 0.0), (0.0, 1.0)
PLAIN = VectorGroups(
    jnp.array([[E1, E1, E2], [(-1.0, 0.0), (-1.0, 0.0), E2]]), jnp.ones((2, 3), bool)
)
NEAR, RIGHT, FAR = math.e, 1.0, 1 / math.e
FORWARD = NEAR + FAR + 2 * RIGHT


@pytest.mark.parametrize(
    "settings, ways",
    [
        ({}, FORWARD),
        # Its own positive, and the other row's query.
        (SYMMETRIC, math.sqrt(FORWARD * (NEAR + FAR))),
        # Beside those: the other query, and the other row's two documents.
        (
            dict(directions=tuple(DIRECTIONS)),
            FORWARD + FAR + (NEAR + FAR) + FAR + RIGHT,
        ),
        # A cosine of -1 gains -2; one of 0 gains nothing.
        (dict(hardness=2.0), NEAR + FAR**3 + 2 * RIGHT),
        (dict(hardness=2.0, hardness_on="hard"), FORWARD),
        (dict(hardness=2.0, hardness_on="all"), NEAR + FAR**3 + 2 * RIGHT),
    ],
)
def test_a_row_chooses_among_candidates_of_each_direction(settings, ways):
    total, count = multiple_negatives(PLAIN, scale=1.0, **settings)
    assert float(count) == 2
    assert float(total) == pytest.approx(2 * math.log(ways / NEAR), rel=1e-6)


def test_hardness_is_for_the_negatives_that_it_names():
    # Half a turn from its own negative, a quarter from the other row's texts.
    vectors = jnp.array([[E1, E1, (-1.0, 0.0)], [E2, E2, E2]])
    groups = VectorGroups(vectors, jnp.array([[True] * 3, [False] * 3]))
    for where, gain in (("in_batch", 1.0), ("hard", FAR**2), ("all", FAR**2)):
        settings = dict(hardness=2.0, hardness_on=where)
        total, count = multiple_negatives(groups, scale=1.0, **settings)
        assert float(count) == 1
        expected = math.log(1 + FAR**2 * gain)
        assert float(total) == pytest.approx(expected, rel=1e-5), where


def test_equal_vectors_and_zeros_have_finite_gradients():
    @jax.jit
    @jax.grad
    def gradient(vectors):
        groups = PLAIN._replace(vectors=vectors)
        return multiple_negatives(groups)[0] + triplet(groups)[0]

    assert jnp.isfinite(gradient(jnp.zeros((2, 3, 2)))).all()
    assert jnp.isfinite(gradient(jnp.ones((2, 3, 2)))).all()


PAIRS = PLAIN._replace(vectors=PLAIN.vectors[:, :2], exists=PLAIN.exists[:, :2])


@pytest.mark.parametrize(
    "name, groups, settings, message",
    [
        ("simcse", PLAIN, dict(directions=("doc",)), "directions='doc' is unknown"),
        ("simcse", PLAIN, dict(directions=("doc_to_query",)), "lacks 'query_to_doc'"),
        (
            "simcse",
            PLAIN,
            dict(directions=tuple(DIRECTIONS), joint=False),
            "joint=False needs a positive in every direction",
        ),
        ("simcse", PLAIN, dict(hardness_on="x"), "choose one of in_batch, hard, all"),
        ("triplet", PLAIN, dict(distance="dot"), "distance='dot' is unknown"),
        ("triplet", PAIRS, {}, "rows have 2 texts; this loss needs 3 or more"),
        ("gist", PLAIN, {}, "gist needs the vectors of a guide"),
        ("cosent", PLAIN, {}, "needs labels, and the rows have none"),
        ("kl", PLAIN._replace(labels=jnp.ones(2)), {}, "one for each of .2, 2. pairs"),
        (
            "margin_mse",
            PLAIN._replace(labels=jnp.ones((2, 3))),
            {},
            r"the shape \(2, 3\); this loss needs \(2, 2\) scores or \(2, 1\) margins",
        ),
        (
            "supervised_contrastive",
            PLAIN._replace(labels=jnp.ones((2, 2))),
            {},
            "needs one class for each of 2 rows",
        ),
        ("embedding_mse", PLAIN, {}, "choose a teacher of the same width"),
    ],
)
def test_what_a_loss_cannot_read_is_refused(name, groups, settings, message):
    with pytest.raises(ValueError, match=message):
        LOSSES[name].function(groups, **settings)


def test_vectors_are_not_cut_beyond_their_width():
    with pytest.raises(ValueError, match=r"dims=\(2, 3\) has 3; vectors have 2"):
        matryoshka(triplet, (2, 3))(PLAIN)
