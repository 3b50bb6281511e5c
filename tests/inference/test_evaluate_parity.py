"""Scores of `Model.evaluate` are those of sentence-transformers on the same vectors."""

import numpy as np
import pytest
from tiny import LETTERS, TINY, made, wordpiece

from bert_jax.data.retrieval import Retrieval
from bert_jax.inference import evaluate
from bert_jax.models import Bert, Features

pytestmark = pytest.mark.parity

DRAW = np.random.default_rng(0)
TEXTS = [f"text {i}" for i in range(60)]
VECTORS = dict(zip(TEXTS, DRAW.normal(size=(60, 6)), strict=True))


def vectors(model, *arguments):
    """The vectors of texts, in float64, so that both sides round alike."""
    *_, texts, batch_size = arguments
    return np.stack([VECTORS[text] for text in texts])


class Theirs:
    """A model of sentence-transformers with the same vectors."""

    similarity_fn_name = "cosine"
    model_card_data = None

    def encode(self, texts, convert_to_tensor=False, **settings):
        import torch

        result = vectors(self, list(texts), None)
        return torch.tensor(result) if convert_to_tensor else result

    encode_query = encode_document = encode

    def similarity(self, a, b):
        from sentence_transformers import util

        return util.cos_sim(a, b)


@pytest.fixture
def model(tmp_path, monkeypatch):
    monkeypatch.setattr(evaluate, "_vectors", vectors)
    return made(Features(Bert(TINY)), wordpiece(tmp_path, LETTERS))


@pytest.fixture
def evaluators(monkeypatch):
    from sentence_transformers.sentence_transformer import evaluation

    base = evaluation.SentenceEvaluator
    monkeypatch.setattr(base, "store_metrics_in_model_card_data", lambda *_: None)
    return evaluation


def test_similarity(model, evaluators):
    numbers = DRAW.integers(0, 6, 30).astype(float).tolist()
    evaluator = evaluators.EmbeddingSimilarityEvaluator(
        TEXTS[:30], TEXTS[30:], numbers, similarity_fn_names=["cosine", "dot"]
    )
    theirs, rows = (
        evaluator(Theirs()),
        zip(TEXTS[:30], TEXTS[30:], numbers, strict=True),
    )
    for name, value in model.evaluate(list(rows)).items():
        assert value == pytest.approx(theirs[name], abs=1e-9), name


def test_pairs(model, evaluators):
    labels = DRAW.integers(0, 2, 30).tolist()
    evaluator = evaluators.BinaryClassificationEvaluator(
        TEXTS[:30], TEXTS[30:], labels, similarity_fn_names=["cosine", "dot"]
    )
    theirs, rows = evaluator(Theirs()), zip(TEXTS[:30], TEXTS[30:], labels, strict=True)
    ours = model.evaluate(list(rows))
    assert len(ours) == 16
    for name, value in ours.items():
        score, _, measure = name.rpartition("_")
        assert value == pytest.approx(float(theirs[f"{measure}_{score}"]), abs=1e-9)


def test_triplets(model, evaluators):
    columns = TEXTS[:20], TEXTS[20:40], TEXTS[40:]
    evaluator = evaluators.TripletEvaluator(
        *columns, similarity_fn_names=["cosine", "dot"]
    )
    theirs = evaluator(Theirs())
    ours = model.evaluate(list(zip(*columns, strict=True)))
    # They average in float32.
    expected = {f"accuracy_{x}": theirs[f"{x}_accuracy"] for x in ("cosine", "dot")}
    assert ours == pytest.approx(expected, abs=1e-7)


def test_reranking(model, evaluators):
    rows = [
        {"query": TEXTS[i], "positive": TEXTS[i + 1 : i + 3], "negative": TEXTS[20:45]}
        for i in range(6)
    ]
    theirs = evaluators.RerankingEvaluator(rows)(Theirs())
    assert model.evaluate(rows) == pytest.approx(theirs, abs=1e-9)


def test_retrieval(model, evaluators):
    queries = {f"q{i}": TEXTS[i] for i in range(10)}
    corpus = {f"d{i}": TEXTS[i] for i in range(10, 60)}
    relevant = {q: set(DRAW.choice(list(corpus), 7).tolist()) for q in queries}
    evaluator = evaluators.InformationRetrievalEvaluator(queries, corpus, relevant)
    theirs = evaluator(Theirs())
    judgements = {q: dict.fromkeys(x, 1) for q, x in relevant.items()}
    ours = model.evaluate(Retrieval(corpus, queries, judgements))
    assert ours.pop("recall@100") == 1
    expected = {name: theirs[f"cosine_{name}"] for name in ours}
    assert ours == pytest.approx(expected, abs=1e-9)
