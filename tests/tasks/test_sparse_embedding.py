"""Laws of training sparse vectors, from the file to the saved model."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from tiny import LETTERS, TINY, made, wordpiece

import bert_jax
from bert_jax.inference.model import load
from bert_jax.models import Bert, Features, MaskedLM
from bert_jax.tasks import SparseEmbeddingTask

SETTINGS = {
    "learning_rate": 1e-2,
    "batch_size": 16,
    "max_length": 10,
    "epochs": 4.0,
    "query_weight": 0.02,
    "document_weight": 0.02,
    "chunk_size": 8,
}


def pairs(path, count, seed):
    """A letter, and a document of letters that begins with it."""
    draw, rows = np.random.default_rng(seed), []
    for i in range(count):
        others = " ".join(draw.choice(list("vwxyz"), 3))
        row = {"query": chr(97 + i % 20), "document": f"{chr(97 + i % 20)} {others}"}
        rows.append(json.dumps(row) + "\n")
    path.write_text("".join(rows))
    return path


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    folder = tmp_path_factory.mktemp("start")
    made(MaskedLM(Bert(TINY)), wordpiece(folder, LETTERS)).save(folder / "model")
    return folder / "model"


@pytest.fixture(scope="module")
def tuned(start, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sparse")
    files = {
        "train": pairs(folder / "train.jsonl", 256, 0),
        "dev": pairs(folder / "dev.jsonl", 20, 1),
    }
    run = {"workdir": folder / "run", **SETTINGS}
    return bert_jax.finetune(start, "embed_sparse", **files, **run), folder


def lines(folder, split):
    rows = map(json.loads, (folder / "run/metrics.jsonl").open())
    return [row for row in rows if row["split"] == split]


@pytest.mark.slow
def test_queries_find_their_documents_with_fewer_weights_than_at_the_start(
    tuned, start
):
    model, folder = tuned
    rows = lines(folder, "eval")
    assert rows[-1]["accuracy"] > 0.9
    best = min(rows, key=lambda row: row["total_loss"])
    scores = json.loads((folder / "run/scores.json").read_text())
    assert scores["step"] == best["step"] > rows[0]["step"]
    texts = ["a", "b", "c", "d v x"]
    before, after = load(start).embed_sparse(texts), model.embed_sparse(texts)
    assert 0 < after.nnz < 0.8 * before.nnz
    assert model.sparse.similarity == "dot"
    assert load(folder / "run/model").sparse == model.sparse


def test_regularisers_rise_with_the_examples_seen():
    task = SimpleNamespace(rising_until=100.0, schedule="quadratic")
    examples = np.array([[40, 0], [60, 0]], np.uint32)
    factor = SparseEmbeddingTask.factor
    assert float(factor(task, {"example": examples})) == pytest.approx(0.25)
    examples[:, 1] = 1  # 2 ** 32 examples later
    assert float(factor(task, {"example": examples})) == 1.0


def test_a_model_without_a_masked_lm_head_and_other_rows_are_refused(tmp_path):
    model = made(Features(Bert(TINY)), wordpiece(tmp_path, LETTERS))
    file = pairs(tmp_path / "a.jsonl", 20, 0)
    files = {"train": file, "dev": pairs(tmp_path / "b.jsonl", 4, 1), "max_length": 8}
    with pytest.raises(ValueError, match="has no masked LM head, which makes the weig"):
        bert_jax.finetune(model, "embed_sparse", **files)
    with pytest.raises(ValueError, match="loss='kl' reads rows of 3 texts|loss=kl"):
        bert_jax.finetune(
            made(MaskedLM(Bert(TINY)), model.tokenizer),
            "embed_sparse",
            loss="kl",
            **files,
        )
    with pytest.raises(ValueError, match="schedule='cubic' is unknown; choose one of"):
        bert_jax.finetune(model, "embed_sparse", schedule="cubic", **files)
    texts = tmp_path / "c.jsonl"
    texts.write_text('{"text": "a b"}\n{"text": "c"}\n')
    with pytest.raises(ValueError, match="this task needs rows of a query and documen"):
        bert_jax.finetune(model, "embed_sparse", train=texts, dev=texts)
