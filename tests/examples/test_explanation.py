"""Laws of the example on attention as an explanation."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from tiny import LETTERS, TINY, made, published, wordpiece, written

from bert_jax.models import (
    Bert,
    Features,
    ModernBertConfig,
    SequenceClassifier,
    masks,
)
from examples.explanation import weights
from examples.explanation.config import get_config
from examples.explanation.explanation import (
    ChangedAttention,
    UniformTraining,
    predict,
    total_variation,
)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    head = SequenceClassifier(Bert(TINY), num_labels=2)
    folder = tmp_path_factory.mktemp("vocabulary")
    return made(head, wordpiece(folder, LETTERS), ("no", "yes"))


def with_weights(model, texts, change):
    """The logits of texts under other weights."""
    batch = model.tokenizer(texts)
    with nn.intercept_methods(weights.intercept(change)):
        return jax.jit(lambda p: model.head.apply({"params": p}, **batch))(model.params)


def test_the_identity_changes_nothing(model):
    texts = ["a b c d", "e f"]
    expected = model(**model.tokenizer(texts))
    same = with_weights(model, texts, lambda x, seen, layer: x)
    np.testing.assert_allclose(same, expected, atol=1e-6)

    def in_order(x, seen, layer):
        return weights.permuted(x, jnp.broadcast_to(jnp.arange(6), x.shape))

    np.testing.assert_array_equal(with_weights(model, texts, in_order), same)


def test_uniform_weights_give_the_mean_of_values(model):
    head, batch = model.head, model.tokenizer(["a b c d", "e f"])
    seen_by_out = {}

    def record(call, args, kwargs, context):
        if context.module.path[-2:] in (("attention", "value"), ("attention", "out")):
            y = call(*args, **kwargs)
            seen_by_out[context.module.name] = args[0], y
            return y
        return call(*args, **kwargs)

    uniform = weights.intercept(lambda x, seen, layer: weights.uniform(x, seen))
    with nn.intercept_methods(uniform), nn.intercept_methods(record):
        head.apply({"params": model.params}, **batch)
    values, means = seen_by_out["value"][1], seen_by_out["out"][0]
    for row, length in enumerate((6, 4)):
        expected = np.asarray(values[row, :length]).mean(0)
        np.testing.assert_allclose(means[row, :length], [expected] * length, atol=1e-6)


def test_an_order_is_a_permutation_of_what_is_seen():
    seen = jnp.array([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]], bool)[:, None, None]
    order = weights.random_order(jax.random.key(0), seen, (2, 3, 5, 5))
    np.testing.assert_array_equal(
        jnp.sort(order[0]), np.broadcast_to(range(5), (3, 5, 5))
    )
    np.testing.assert_array_equal(jnp.sort(order[1, :, :, :2])[0, 0], [0, 1])
    assert len({tuple(x) for x in order[0].reshape(-1, 5).tolist()}) > 5
    old = jax.nn.softmax(jax.random.normal(jax.random.key(1), (2, 3, 5, 5)))
    old = jnp.where(seen, old, 0)
    new = weights.permuted(old, order)
    np.testing.assert_allclose(jnp.sort(new), jnp.sort(old))
    assert not (new[1, :, :, 2:] > 0).any()


def test_the_largest_weight_of_uniform_attention_is_one_over_the_length():
    seen = masks.visible(jnp.array([[1, 1, 1, 1], [1, 1, 0, 0]]))
    old = weights.uniform(jnp.zeros((2, 3, 4, 4)), seen)
    np.testing.assert_allclose(weights.largest(old, seen), [0.25, 0.5])


def test_unchanged_layers_give_the_models_own_probabilities_in_order(model):
    texts = ["a b c d e f g h i j k l m n", *["b a"] * 40, "q"]
    expected = [dict(labels)["yes"] for labels in model.classify(texts)]
    nothing, everything = np.array([False]), np.array([True])
    same, peaks = predict(model, texts, "permuted", nothing)
    np.testing.assert_allclose(same[:, 1], expected, atol=1e-6)
    assert peaks.shape == (1, 42) and (peaks > 1 / 16).all() and (peaks <= 1).all()
    changed, _ = predict(model, texts, "permuted", everything)
    assert 1e-4 < total_variation(same, changed).max() <= 1
    again, _ = predict(model, texts, "permuted", everything)
    np.testing.assert_array_equal(again, changed)


def test_the_distance_of_certain_opposite_answers_is_one():
    one = np.array([[1.0, 0.0], [0.5, 0.5]])
    np.testing.assert_allclose(total_variation(one, one[:, ::-1]), [1, 0])


def test_a_run_writes_scores_and_plots(model, tmp_path):
    model.save(tmp_path / "model")
    data = written(tmp_path / "dev.tsv", 9, 0)
    test = get_config("changed")
    test.model, test.data, test.permutations = str(tmp_path / "model"), str(data), 2
    scores = test.run(tmp_path / "run")
    assert json.loads((tmp_path / "run/scores.json").read_text()) == scores
    assert scores["uniform"].keys() == scores["permuted"].keys() == {"layer_0", "all"}
    # One layer is all layers.
    assert scores["uniform"]["layer_0"] == scores["uniform"]["all"]
    for name in ("permuted", "uniform"):
        assert (tmp_path / f"run/{name}.png").stat().st_size > 1000


def test_wrong_fields_are_refused_with_the_remedy(model, tmp_path):
    with pytest.raises(ValueError, match="'both' is unknown; choose one of changed"):
        get_config("both")
    with pytest.raises(ValueError, match="data is missing; set it with --config.data"):
        ChangedAttention(model="x").run(tmp_path)
    with pytest.raises(ValueError, match="permutations=0 is below 1; raise it"):
        ChangedAttention(model="x", data="y", permutations=0).run(tmp_path)
    with pytest.raises(ValueError, match="train is missing; set it with --config.trai"):
        UniformTraining(init_from="x").run(tmp_path)
    start = published(tmp_path)
    with pytest.raises(ValueError, match="is no classifier of the family of BERT"):
        ChangedAttention(model=str(start), data="y").run(tmp_path)
    other = ModernBertConfig(
        vocab_size=31,
        hidden_size=12,
        num_hidden_layers=1,
        num_attention_heads=3,
        intermediate_size=20,
    )
    made(Features(other.build()), model.tokenizer).save(tmp_path / "modern")
    with pytest.raises(ValueError, match="modern is not of the family of BERT"):
        UniformTraining(str(tmp_path / "modern"), "a", "b").run(tmp_path)


@pytest.mark.slow
def test_a_model_that_is_trained_with_uniform_weights_has_its_score_only_with_them(
    tmp_path,
):
    model = UniformTraining(
        init_from=str(published(tmp_path)),
        train=str(written(tmp_path / "train.tsv", 576, 0)),
        dev=str(written(tmp_path / "dev.tsv", 29, 1)),
        epochs=2,
        learning_rate=1e-2,
        max_length=16,
    ).run(tmp_path / "run")
    rows = [x.split("\t") for x in (tmp_path / "dev.tsv").read_text().splitlines()]
    texts, labels = zip(*rows, strict=True)
    uniform, _ = predict(model, list(texts), "uniform", np.array([True]))
    right = np.mean(
        [model.labels[i] == y for i, y in zip(uniform.argmax(1), labels, strict=True)]
    )
    scores = json.loads((tmp_path / "run/scores.json").read_text())["scores"]
    assert scores["eval"]["accuracy"] == pytest.approx(right) and right > 0.8
    jax.clear_caches()  # of functions that were traced with uniform weights
    attending, _ = predict(model, list(texts), "uniform", np.array([False]))
    assert np.abs(attending - uniform).max() > 1e-3
