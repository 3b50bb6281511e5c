"""Laws of training sentence vectors, from the file to the saved model."""

import json

import numpy as np
import pytest
from tiny import published

import bert_jax
from bert_jax.inference.model import load


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
