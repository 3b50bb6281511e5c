"""Laws of training late interaction, from the file to the saved model."""

import json

import numpy as np
import pytest
from test_sparse_embedding import lines, pairs
from tiny import LETTERS, TINY, made, wordpiece

import bert_jax
from bert_jax.inference import maxsim
from bert_jax.inference.model import load
from bert_jax.models import Bert, Features

PIECES = [*LETTERS[:5], "[unused0]", "[unused1]", *LETTERS[5:]]


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    folder = tmp_path_factory.mktemp("late")
    config = {**vars(TINY), "vocab_size": len(PIECES)}
    encoder = Bert(type(TINY)(**config))
    start = made(Features(encoder), wordpiece(folder, PIECES))
    run = {"learning_rate": 1e-2, "batch_size": 16, "max_length": 10, "epochs": 4.0}
    run |= {"width": 8, "query_length": 6, "scale": 3.0, "workdir": folder / "run"}
    files = {
        "train": pairs(folder / "train.jsonl", 160, 0),
        "dev": pairs(folder / "dev.jsonl", 20, 1),
    }
    return bert_jax.finetune(start, "embed_tokens", **files, **run), folder


def test_queries_find_their_documents(tuned):
    _, folder = tuned
    scores = [row["accuracy"] for row in lines(folder, "eval")]
    assert max(scores) > 0.8


def test_a_saved_model_scores_as_its_predictions_say(tuned):
    model, folder = tuned
    model = load(folder / "run/model")
    assert model.late.query_prompt == "[unused0] " and model.late.fill_to == 6
    rows = list(map(json.loads, (folder / "dev.jsonl").open()))
    queries = model.embed_tokens([row["query"] for row in rows], kind="query")
    assert [x.shape for x in queries] == [(6, 8)] * len(rows)
    documents = model.embed_tokens([row["document"] for row in rows])
    expected = np.diag(maxsim(queries, documents))
    table = (folder / "run/predictions/eval.tsv").read_text().splitlines()[1:]
    scores = [float(row.split("\t")[1]) for row in table]
    np.testing.assert_allclose(scores, expected, atol=1e-3)
