"""Laws of training sentence vectors, from the file to the saved model."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import TINY, made, published

import bert_jax
from bert_jax.data import memory_rows
from bert_jax.data.text_groups import GroupColumns, TextGroups
from bert_jax.inference.model import load
from bert_jax.models import Bert, Features
from bert_jax.objectives.contrastive import LOSSES, VectorGroups
from bert_jax.tasks import EmbeddingConfig, embedding_scores


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    return published(tmp_path_factory.mktemp("start"))


def text(draw, has_q):
    letters = list(draw.choice(list("abcdefgh"), draw.integers(2, 7)))
    if has_q:
        letters[draw.integers(len(letters))] = "q"
    return " ".join(letters)


def pairs(path, count, seed):
    """Scored pairs: 5 if both have a q or none has, otherwise 1."""
    draw, rows = np.random.default_rng(seed), []
    for i in range(count):
        one, two = i % 2, i // 2 % 2
        score = 5 if one == two else 1
        rows.append(f"{text(draw, one)}\t{text(draw, two)}\t{score}\n")
    path.write_text("".join(rows))
    return path


@pytest.fixture(scope="module")
def tuned(start, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tuned")
    files = {
        "train": pairs(folder / "train.tsv", 320, 0),
        "dev": pairs(folder / "dev.tsv", 40, 1),
    }
    settings = {"learning_rate": 1e-2, "batch_size": 16, "epochs": 4.0}
    run = {"workdir": folder / "run", "max_length": 12, "dense": 8, "chunk_size": 8}
    return bert_jax.finetune(start, "embed", **files, **settings, **run), folder


def lines(folder, split):
    rows = map(json.loads, (folder / "run/metrics.jsonl").open())
    return [row for row in rows if row["split"] == split]


@pytest.mark.slow
def test_vectors_learn_what_scores_say(tuned):
    _, folder = tuned
    scores = [row["spearman"] for row in lines(folder, "eval")]
    assert scores[-1] > 0.6


def test_a_saved_model_embeds_as_its_predictions_say(tuned):
    model, folder = tuned
    model = load(folder / "run/model")
    assert model.pooling.normalize and model.pooling.modes == ("mean",)
    rows = [x.split("\t") for x in (folder / "dev.tsv").read_text().splitlines()]
    one, two = (model.embed([row[i] for row in rows]) for i in (0, 1))
    assert one.shape == (40, 8)
    table = (folder / "run/predictions/eval.tsv").read_text().splitlines()[1:]
    cosines = [float(row.split("\t")[1]) for row in table]
    np.testing.assert_allclose(np.einsum("nd,nd->n", one, two), cosines, atol=1e-4)


PAIRS = [{"query": f"a {x}", "document": f"b {x}"} for x in "cdefghij"]
TRIPLETS = [{**row, "negative": ["z", "y"]} for row in PAIRS]
SCORED = [(f"a {x}", f"b {x}", i) for i, x in enumerate("cdefghij")]
LABELLED = [(f"a {x}", "yes" if x in "cdef" else "no") for x in "cdefghijkl"]
TEXTS = [{"text": f"a {x}"} for x in "cdefghij"]


def task_of(start, tmp_path, train, dev=PAIRS, **settings):
    """A task on rows in memory, with its config."""
    for name, rows in (("train", train), ("dev", dev)):
        memory_rows.write(rows, tmp_path / f"{name}.jsonl", name)
        settings[name] = str(tmp_path / f"{name}.jsonl")
    config = EmbeddingConfig(init_from=str(start), max_length=12, **settings)
    return config.prepare(tmp_path, config.checkpoint.head.encoder.config, 0)


def losses(task, split="train", key=None):
    """The totals of all rows of a split, and their vectors."""
    model = task.build(task.start.head.encoder)
    params = jax.tree.map(jnp.asarray, task.pretrained_params(""))
    rows = task.rows[split]
    batch = rows.gather(np.arange(len(rows)))
    return task.loss(model, params, batch, key)


@pytest.mark.parametrize(
    "rows, loss",
    [
        pytest.param(PAIRS, "multiple_negatives", marks=pytest.mark.slow),
        (TRIPLETS, "multiple_negatives"),
        pytest.param(SCORED, "cosent", marks=pytest.mark.slow),
        pytest.param(LABELLED, "supervised_contrastive", marks=pytest.mark.slow),
    ],
)
def test_the_columns_choose_the_loss(start, tmp_path, rows, loss):
    task = task_of(start, tmp_path, rows, rows)
    totals, predictions = losses(task)
    texts = [text for row in task.content["train"].texts for text in row]
    vectors = load(start).embed([text or "a" for text in texts], normalize=True)
    exists = np.array([bool(text) for text in texts])
    shape = len(task.content["train"]), -1
    groups = VectorGroups(
        vectors.reshape(*shape, 12),
        exists.reshape(shape),
        task.rows["train"].columns.get("labels"),
    )
    expected = LOSSES[loss].function(groups)
    np.testing.assert_allclose(totals["loss"], expected, rtol=1e-5)
    np.testing.assert_allclose(
        predictions["vectors"].reshape(-1, 12)[exists], vectors[exists], atol=1e-5
    )


def test_simcse_reads_each_text_twice_with_other_dropout(start, tmp_path):
    with pytest.warns(UserWarning, match="the model has no dropout, so that both"):
        task = task_of(start, tmp_path, TEXTS)
    (value, count), _ = losses(task)[0]["loss"], None
    task = dataclasses.replace(task, start=with_dropout(task.start))
    (dropped, _), _ = losses(task, key=jax.random.key(0))[0]["loss"], None
    assert count == len(TEXTS) and dropped > value + 0.01


def with_dropout(checkpoint):
    encoder = Bert(dataclasses.replace(TINY, hidden_dropout_prob=0.3))
    return dataclasses.replace(checkpoint, head=Features(encoder, has_pooler=True))


def test_a_held_out_file_can_be_of_another_kind(start, tmp_path):
    task = task_of(start, tmp_path, TEXTS, SCORED)
    assert task.best_metric == "spearman"
    totals, predictions = losses(task, "eval")
    assert "loss" not in totals
    scores = task.report("eval", {}, predictions)
    assert scores.keys() == {"spearman", "pearson", "constant_spearman"}


def test_prompts_come_before_queries_and_documents_and_need_not_be_pooled(
    start, tmp_path
):
    prompts = {"query_prompt": "q w ", "document_prompt": "e ", "include_prompt": False}
    task = task_of(start, tmp_path, PAIRS, **prompts)
    _, predictions = losses(task)
    model = task.to_model(task.build(task.start.head.encoder), task.start.params)
    assert dict(model.pooling.prompts) == {"query": "q w ", "document": "e "}
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    for c, name in enumerate(("query", "document")):
        texts = [row[name] for row in PAIRS]
        vectors = again.embed(texts, prompt=name)
        np.testing.assert_allclose(predictions["vectors"][:, c], vectors, atol=1e-5)
    # "q w a c" without [CLS], "q" and "w"
    states = again.hidden_states(**again.tokenizer("q w a c"))[-1, 0]
    mean = np.asarray(states)[3:].mean(0)
    np.testing.assert_allclose(
        again.embed("a c", prompt="query")[0], mean / np.linalg.norm(mean), atol=1e-5
    )


@pytest.mark.parametrize(
    "loss, model", [("gist", "guide"), ("embedding_mse", "teacher")]
)
def test_other_models_fill_the_vectors_that_a_loss_compares_with(
    start, tmp_path, loss, model
):
    tokenizer = load(start).tokenizer
    another = made(Features(Bert(TINY)), tokenizer, seed=3)
    another.save(tmp_path / "other")
    task = task_of(
        start, tmp_path, PAIRS, loss=loss, **{model: str(tmp_path / "other")}
    )
    other = task.rows["train"].columns[model]
    np.testing.assert_allclose(other[1, 1], another.embed("b d")[0], atol=1e-5)
    totals, predictions = losses(task)
    vectors = predictions["vectors"]
    assert task.fingerprint["others"]
    groups = VectorGroups(vectors, np.ones((8, 2), bool), **{model: other})
    expected = LOSSES[loss].function(groups, **LOSSES[loss].settings)
    np.testing.assert_allclose(totals["loss"], expected, rtol=1e-4)


@pytest.mark.parametrize(
    "train, settings, message",
    [
        (
            PAIRS,
            {"loss": "x"},
            "^loss='x' is unknown; choose one of multiple_negatives",
        ),
        (
            PAIRS,
            {"loss": "cosent"},
            "^loss=cosent reads rows of 2 texts with scores, bu",
        ),
        (
            PAIRS,
            {"loss": "gist"},
            "^loss=gist needs another model; name one with guide$",
        ),
        (
            PAIRS,
            {"margin": 1.0},
            "^margin=1.0 is no setting of this loss, which has sc",
        ),
        (
            PAIRS,
            {"pooling": "sum"},
            "^pooling='sum' is unknown; choose one of cls, max",
        ),
        (
            PAIRS,
            {"max_score": 0},
            "^max_score=0.0 must be above 0, and dense=0 and chu",
        ),
        (PAIRS, {"activation": "x"}, "^activation='x' is unknown; choose one of Ident"),
        (PAIRS, {"dims": (99,)}, "^dims=99 is not between 1 and the width 12 of vecto"),
        (
            PAIRS[:1] * 8,
            {},
            "^train: 'a c' is in 8 of 8 rows, and the rows of a batch are",
        ),
        (
            SCORED,
            {"loss": "cosine_mse"},
            "score '2.0': is beyond 1; set max_score to t",
        ),
    ],
)
def test_what_cannot_be_trained_is_refused_before_anything_compiles(
    start, tmp_path, train, settings, message
):
    with pytest.raises(ValueError, match=message):
        bert_jax.finetune(
            start,
            "embed",
            train=train,
            dev=PAIRS,
            batch_size=8,
            max_length=12,
            **settings,
        )


def test_metrics_of_pairs_ignore_copies_and_other_positives_of_an_anchor():
    texts = [("a", "b"), ("a", "c"), ("d", "b"), ("e", "f")]
    groups = TextGroups("", "pairs", texts, None, [], GroupColumns())
    x = {
        "a": (1, 0),
        "b": (0.9, 0.1),
        "c": (0.8, 0.6),
        "d": (0, 1),
        "e": (1, 0),
        "f": (0, 1),
    }
    vectors = np.array([[x[text] for text in row] for row in texts], float)
    # The rank of c leaves b out; for d, c and f are closer than b; for e all are.
    assert embedding_scores.ranks(groups, vectors).tolist() == [1, 1, 3, 4]
